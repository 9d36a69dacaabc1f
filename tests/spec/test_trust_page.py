"""The pages on trust and observability say what the code does."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from nojit.runtime.trust.reasons import REASONS

from tests.spec.pages import ROOT, blocks, rows
from tests.spec.test_faults_page import check_named_tests

TRUST, OBSERVABILITY = ROOT / "docs/trust.md", ROOT / "docs/observability.md"


def test_the_table_of_reasons_is_the_codes() -> None:
    assert {reason: words for reason, words in rows(TRUST, "reasons")} == REASONS  # noqa: C416 - rows are lists


@pytest.mark.parametrize("row", rows(TRUST, "attacks"), ids=lambda row: row[0][:60])
def test_every_attack_has_tests(row: list[str]) -> None:
    check_named_tests(row[2])


def test_the_files_of_keys_on_the_page_are_read(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    from nojit.runtime.trust.trusted_keys import read_trusted_keys

    from tests.support.signing import Signer

    (block,) = [block for block in blocks("toml") if block.words == ("keys",)]
    path = tmp_path / "trusted.toml"
    path.write_text(block.text, encoding="utf-8")
    trusted = read_trusted_keys(str(path))
    assert trusted.minimum == {"acme": 41}
    assert {key_id: key.bundles for key_id, key in trusted.keys.items()} == {Signer.of("release").key_id: ("acme",)}


def shape(value: Any) -> Any:
    """Replace what differs from build to build by its type; of a list, all shapes that there are."""
    if isinstance(value, dict):
        return {name: shape(each) for name, each in value.items()}
    if isinstance(value, list):
        return {json.dumps(shape(each), sort_keys=True) for each in value}
    return type(value).__name__


def test_the_statement_on_the_page_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("msgspec")
    from tests.aot.cli.conftest import MANIFEST
    from tests.aot.conftest import HEADER
    from tests.aot.provenance.test_write_statement import attested

    manifest = tmp_path / "demo.toml"
    manifest.write_text(HEADER + MANIFEST, encoding="utf-8")
    (block,) = [block for block in blocks("json") if block.page == TRUST]
    reached = (("click", find_spec("click").origin), ("tiles", str(manifest)))
    monkeypatch.chdir(tmp_path)
    said, made = json.loads(block.text), attested(manifest, reached=reached)
    for statement in (said, made):
        definition = statement["predicate"]["buildDefinition"]
        # without git there is no source, and kernels can be left open
        definition["resolvedDependencies"] = [
            each for each in definition["resolvedDependencies"] if each["name"] != "source"
        ]
        definition["externalParameters"]["kernels"] = []
    assert shape(said) == shape(made)


def test_the_table_of_events_is_the_codes() -> None:
    from nojit.runtime.observe import events

    levels = {10: "DEBUG", 20: "INFO", 30: "WARNING"}
    said = {kind: level for kind, level, _ in rows(OBSERVABILITY, "events")}
    assert said == {kind: levels[number] for kind, number in events._LEVELS.items()}
