"""Write the generated parts of the documentation anew: ``python -m tests.spec.generate``, from the repository's root.

The tests compare those parts with what this would write.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from nojit.aot.manifest.schema import json_schema

from tests.spec import (
    cli_reference,
    language_model_reference,
    manifest_reference,
    random_shapes_reference,
    settings_reference,
    target_reference,
    tiny,
)
from tests.spec.pages import ROOT, replace_generated

__all__ = ["FILES", "PARTS"]

PARTS: dict[tuple[Path, str], Callable[[], str]] = {
    (ROOT / "docs/bundle-format.md", "tiny"): lambda: tiny.render(tiny.tiny_bundle()),
    (ROOT / "docs/bundle-format.md", "targets"): target_reference.render_targets,
    (ROOT / "docs/manifest.md", "grammar"): manifest_reference.render_grammar,
    (ROOT / "docs/manifest.md", "reference"): manifest_reference.render_reference,
    (ROOT / "docs/cache.md", "settings"): settings_reference.render_settings,
    (ROOT / "docs/cli.md", "commands"): cli_reference.render_commands,
    (ROOT / "docs/benchmarks.md", "random-shapes"): random_shapes_reference.render_all,
    (ROOT / "docs/operators-in-llms.md", "shares"): language_model_reference.render_shares,
    (ROOT / "docs/operators-in-llms.md", "speedups"): language_model_reference.render_speedups,
    (ROOT / "README.md", "random-shapes"): random_shapes_reference.render_few,
    (ROOT / "docs/json-output.md", "facts"): cli_reference.render_facts,
}


FILES: dict[Path, Callable[[], str]] = {
    ROOT / "docs/manifest.schema.json": lambda: json.dumps(json_schema(), indent=2) + "\n",
}
"""Whole files."""


def main() -> None:
    """Write them."""
    for path, render_file in FILES.items():
        path.write_text(render_file(), encoding="utf-8")
    for (page, name), render in PARTS.items():
        replace_generated(page, name, render())


if __name__ == "__main__":
    main()
