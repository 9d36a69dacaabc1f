"""The fuzzer, bounded; and the same damage by Hypothesis, which shrinks what it finds.

``NOJIT_FUZZ_COUNT`` and ``NOJIT_FUZZ_SEED`` set how many mutants and which; the stand-alone fuzzer takes them by the
million.
"""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nojit.runtime.errors import BundleError

from tests.abuse.fuzz_bundle import Fuzzer
from tests.support.hostile import read_everything, small_parts
from tests.support.jsonlies import NodePath, edit_index, edit_raw, edit_table, get, nodes, put

COUNT = int(os.environ.get("NOJIT_FUZZ_COUNT", "4000"))
SEED = int(os.environ.get("NOJIT_FUZZ_SEED", "1"))
EXAMPLES = max(50, COUNT // 20)

PARTS = small_parts()
INDEX: dict[str, Any] = {}
TABLE: dict[str, Any] = {}
edit_index(PARTS, INDEX.update)
edit_table(PARTS, 0, TABLE.update)

JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
bounded = settings(
    max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], database=None
)


@pytest.fixture
def mutant(tmp_path: Path) -> Path:
    return tmp_path / "mutant.nojit"


def read(path: Path, data: bytes) -> bool:
    """Whether a bundle is accepted; an error of any other kind fails the test."""
    path.write_bytes(data)
    try:
        read_everything(path)
    except BundleError:
        return False
    return True


def test_mutants_are_refused_or_whole(tmp_path: Path) -> None:
    fuzzer = Fuzzer(PARTS, SEED, tmp_path)
    fault = fuzzer.run(COUNT)
    fuzzer.close()
    assert fault is None, {outcome for _, outcome in fuzzer.outcomes if outcome.startswith("FAULT")}
    assert sum(fuzzer.outcomes.values()) == COUNT
    assert len(fuzzer.outcomes) > 40, "the mutants reach many rules"


def test_mutants_are_reproducible(tmp_path: Path) -> None:
    first, second = Fuzzer(PARTS, SEED, tmp_path), Fuzzer(PARTS, SEED, tmp_path)
    assert first.run(200) is second.run(200) is None
    first.close()
    second.close()
    assert first.outcomes == second.outcomes


@bounded
@given(st.sampled_from(list(nodes(INDEX))), JUNK)
def test_junk_in_the_index(mutant: Path, path: NodePath, junk: Any) -> None:
    read(mutant, edit_index(PARTS, lambda index: put(index, path, junk)))


@bounded
@given(st.sampled_from(list(nodes(TABLE))), JUNK)
def test_junk_in_a_table(mutant: Path, path: NodePath, junk: Any) -> None:
    read(mutant, edit_table(PARTS, 0, lambda table: put(table, path, junk)))


@bounded
@given(st.data())
def test_nodes_of_a_table_in_each_others_place(mutant: Path, data: st.DataObject) -> None:
    here, there = (data.draw(st.sampled_from(list(nodes(TABLE)))) for _ in range(2))
    read(mutant, edit_table(PARTS, 0, lambda table: put(table, here, copy.deepcopy(get(TABLE, there)))))


@bounded
@given(st.sampled_from(["index", "table 0", "images 0", "groups 0"]), st.binary(max_size=200))
def test_any_bytes_as_a_part(mutant: Path, part: str, raw: bytes) -> None:
    assert not read(mutant, edit_raw(PARTS, part, lambda _: raw))


@bounded
@given(st.binary(max_size=300))
def test_any_bytes_as_an_image(mutant: Path, raw: bytes) -> None:
    assert not read(mutant, edit_raw(PARTS, "group 0", lambda _: raw))


@bounded
@given(st.binary(max_size=300), st.booleans())
def test_any_bytes_as_a_file(mutant: Path, raw: bytes, with_magic: bool) -> None:
    assert not read(mutant, b"nojit\r\n\x1a\2\0\0\0" * with_magic + raw)
