"""Hostile bundles with right hashes, bounded: each ends with errors of nojit's own, or none, at a cost in proportion to its length.

``NOJIT_FUZZ_BUNDLES`` and ``NOJIT_FUZZ_SEED`` say how many and which. ``python tests/abuse/fuzz_structures.py`` takes them by the
million; ``--seed`` and ``--only`` repeat the one that a finding names.
"""

from __future__ import annotations

import collections
import os
from pathlib import Path
from types import ModuleType

import pytest
from nojit.aot.inspect.verification import verify_bundle
from nojit.runtime.bundle.file import BundleFile

from tests.abuse.exercise import Exerciser, FindingError
from tests.abuse.fuzz_structures import Limits, take_one
from tests.abuse.writer import HostileWriter
from tests.fakecuda import FakeCuda
from tests.support.costs import loop_seconds
from tests.support.drafts import Draft, remake, take_apart
from tests.support.hostile import golden_parts
from tests.support.lies import WAYS
from tests.support.random_kernels import random_draft

COUNT = int(os.environ.get("NOJIT_FUZZ_BUNDLES", "240"))
SEED = int(os.environ.get("NOJIT_FUZZ_SEED", "1"))
# of an empty loop, on the machine that the tests run on
SECOND_STEPS = 90_000_000
MEMORY_BYTES = 32 << 20


@pytest.fixture
def exerciser(tmp_path: Path, fakecuda: FakeCuda, faketorch: ModuleType) -> Exerciser:
    return Exerciser(tmp_path, fakecuda, faketorch)


def test_hostile_bundles_end_in_errors_of_ours(exerciser: Exerciser) -> None:
    writer = HostileWriter(SEED)
    # what looks for faults of memory takes memory of its own
    memory_bytes = 0 if "libasan" in os.environ.get("LD_PRELOAD", "") else MEMORY_BYTES
    limits = Limits(loop_seconds(SECOND_STEPS), memory_bytes)
    findings = []
    for number in range(COUNT):
        try:
            take_one(writer, exerciser, number, limits)
        except FindingError as finding:
            findings.append(f"--seed {SEED} --only {number}: {finding}")
    assert not findings, "\n".join(findings)
    reached = collections.Counter({step: count for (step, said), count in exerciser.steps.items() if said == "works"})
    for step in ("open", "table", "row", "verify", "explain", "warm up", "launch", "preload"):
        assert reached[step] > COUNT // 12, f"too few inputs come as far as {step}"
    assert len(exerciser.steps) > 60, "the inputs break many rules"


def test_inputs_are_known_by_their_number() -> None:
    one, other = HostileWriter(SEED), HostileWriter(SEED)
    forwards = [one.write(number)[0].seal() for number in range(40)]
    backwards = [other.write(number)[0].seal() for number in reversed(range(40))]
    assert forwards == backwards[::-1]
    assert len(set(forwards)) > 30


def test_every_way_of_lying_is_taken() -> None:
    writer = HostileWriter(SEED)
    taken = {way for number in range(480) for way in writer.write(number)[1]}
    assert taken >= WAYS.keys()


def test_a_draft_says_all_that_a_bundle_does(tmp_path: Path) -> None:
    golden = golden_parts().seal()
    path = tmp_path / "again.nojit"
    draft = take_apart(golden)
    path.write_bytes(draft.seal())
    with BundleFile(path) as bundle:
        verify_bundle(bundle)
    assert take_apart(path.read_bytes()) == draft
    remade = Draft(draft.index, [kernel.copied() for kernel in draft.kernels])
    for kernel in remade.kernels:
        remake(kernel, "sm_90a")
    path.write_bytes(remade.seal())
    with BundleFile(path) as bundle:
        verify_bundle(bundle)


def test_bases_are_right(tmp_path: Path) -> None:
    path = tmp_path / "right.nojit"
    writer = HostileWriter(SEED)
    for base in range(12):
        path.write_bytes(random_draft(writer.chance(base, "base")).seal())
        with BundleFile(path) as bundle:
            verify_bundle(bundle)


def test_a_finding_is_told_with_its_input(exerciser: Exerciser, fakecuda: FakeCuda) -> None:
    writer = HostileWriter(SEED)
    with pytest.raises(FindingError, match=r"input 3, \d+ bytes, .*: expected at most 0 s, took"):
        take_one(writer, exerciser, 3, Limits(0, 0))
    with pytest.raises(FindingError, match=r"input 3, \d+ bytes, .*: launch raised ZeroDivisionError"):
        _failing(exerciser, writer)
    fakecuda.violations()


def _failing(exerciser: Exerciser, writer: HostileWriter) -> None:
    def fails() -> None:
        raise ZeroDivisionError

    exerciser._all = lambda _: exerciser._step("launch", fails)  # type: ignore[method-assign]
    take_one(writer, exerciser, 3, Limits(1e9, 0))
