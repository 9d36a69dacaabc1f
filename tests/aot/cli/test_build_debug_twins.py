"""`nojit build --debug-info=twin`: what it writes and says."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nojit.aot.pipeline.debug_twins import FOLDER

from tests.aot.cli.conftest import Run
from tests.aot.fake_compiler import FakeCompiler

TWIN = "demo-debug-1.0-sm_90.nojit"


def test_the_command_builds_both(
    run: Run, document: Callable[..., dict[str, Any]], use_compiler: Callable[..., FakeCompiler], manifest: Path
) -> None:
    use_compiler()
    out = manifest.parent / "out"
    result = run("build", manifest, "--out", out, "--jobs", 1, "--debug-info", "twin")
    assert result.exit_code == 0
    assert "add: 8 variants have other instructions than without line info" in result.stdout
    statement = json.loads((out / FOLDER / TWIN).with_suffix(".provenance.json").read_bytes())
    asked = statement["predicate"]["buildDefinition"]["externalParameters"]
    assert (asked["bundle"]["name"], asked["lineInfo"]) == ("demo-debug", True)
    written = document("build", manifest, "--out", out, "--jobs", 1, "--debug-info", "twin")
    assert [report["path"] for report in written["twins"]] == [str(out / FOLDER / TWIN)]
    assert written["twins"][0]["up_to_date"]
    assert document("build", manifest, "--out", out, "--jobs", 1)["twins"] == []
