"""A worker compiles what a job holds, protected from it; workshops serve one setup after another."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from nojit.aot.compile.processes.source_compiler import SourceCompiler
from nojit.aot.manifest.reader import find_manifests
from nojit.aot.plan.planner import make_plans
from nojit.aot.remote import messages, worker
from nojit.aot.remote.messages import Description, Job, Other, Refused, Setup
from nojit.aot.remote.version import nojit_version
from nojit.aot.remote.workshop import Workshop, Workshops, mismatch
from nojit.aot.variants.variant import CompiledVariant

from tests.aot.conftest import ROOT

TOOLS = (("ptxas", "13.4"),)


@pytest.fixture(scope="module")
def made() -> Iterator[tuple[Job, list[CompiledVariant]]]:
    """A job, and what this machine compiles from the source."""
    compiler = SourceCompiler()
    with compiler.session(300, lambda _: None):
        (plan,) = make_plans(find_manifests([ROOT / "examples/vector_add"]), ["sm_90"], "full", compiler, ())
        (kernel,) = plan.kernels
        variants = kernel.variants[:2]
        keys = compiler.variant_keys(variants, kernel.source, kernel.place)
        captured = compiler.captured(kernel.place, "sm_90", ())
        setup = Setup(nojit_version(), None, 300.0)
        tools = compiler.toolchain("sm_90")
        job = Job(setup, "sm_90", tools, kernel.place.where, captured, tuple(zip(keys, variants, strict=True)))
        yield job, [compiler.compile_variant(variant, kernel.place) for variant in variants]


@pytest.fixture(scope="module")
def shop(made: tuple[Job, list[CompiledVariant]]) -> Iterator[Workshop]:
    shop = Workshop(made[0].setup, 2)
    yield shop
    shop.close()


@pytest.mark.triton
def test_a_job_gives_what_its_source_gives(made: tuple[Job, list[CompiledVariant]], shop: Workshop) -> None:
    job, right = made
    found = shop.compile(messages.decode_job(messages.encode_job(job)))
    assert [key for key, _ in found] == [key for key, _ in job.variants]
    for (_, outcome), own in zip(found, right, strict=True):
        assert isinstance(outcome, CompiledVariant)
        assert replace(outcome, compile_ms=own.compile_ms) == own
    assert [file for _, file in job.captured.files] == [str(ROOT / "examples/vector_add/kernel.py")]


@pytest.mark.triton
def test_a_variant_with_another_key_is_not_compiled(made: tuple[Job, list[CompiledVariant]], shop: Workshop) -> None:
    job, _ = made
    (first, variant), second = job.variants
    found = dict(shop.compile(replace(job, variants=(("0" * 64, variant), second))))
    assert found["0" * 64] == Other("its source closure gives another key than its source")
    assert isinstance(found[second[0]], CompiledVariant)
    assert first not in found


@pytest.mark.triton
def test_a_job_that_nobody_wants_ends_its_compilations(
    made: tuple[Job, list[CompiledVariant]], shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, _ = made
    ended: list[int] = []
    abandon = shop._pool.abandon
    monkeypatch.setattr(shop._pool, "abandon", lambda futures: ended.append(len(futures)) or abandon(futures))
    monkeypatch.setattr("nojit.aot.remote.workshop._LOOK_S", 0)
    outcomes = [outcome for _, outcome in shop.compile(job, lambda: True)]
    assert ended
    assert all(isinstance(outcome, CompiledVariant | Other) for outcome in outcomes)
    # the next job has its processes
    assert all(isinstance(outcome, CompiledVariant) for _, outcome in shop.compile(job))


@pytest.mark.triton
def test_closures_that_differ_from_their_digest_compile_nothing(
    made: tuple[Job, list[CompiledVariant]], shop: Workshop
) -> None:
    job, _ = made
    ((_, text),) = job.captured.closures
    forged = "f" * 64
    captured = job.captured._replace(kernel=forged, closures=((forged, text),))
    for _, outcome in shop.compile(replace(job, captured=captured)):
        assert isinstance(outcome, Other)
        assert "expected a closure with the digest ffffffffffff" in outcome.why


@pytest.mark.triton
def test_a_job_for_another_toolchain_is_refused(
    made: tuple[Job, list[CompiledVariant]], shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, _ = made
    message = messages.encode_job(replace(job, tools=(("ptxas", "1.0"), ("triton", "3.9.0"))))
    monkeypatch.setattr(worker._SHOPS, "open", lambda _setup, _threads: nullcontext(shop))
    answer = messages.decode_results(worker.compile_job(message), "sm_90")
    assert isinstance(answer, Refused)
    assert answer.has.tools == {"sm_90": job.tools}


def test_mismatches_name_what_differs() -> None:
    has = Description("1", "host", {"sm_90": TOOLS})
    assert mismatch("1", [("sm_90", TOOLS)], has) == ""
    assert mismatch("2", [("sm_90", TOOLS)], has) == "expected nojit 2, got 1"
    other = (("ptxas", "12.9"), ("settings", "A=1"))
    assert mismatch("1", [("sm_90", other)], has) == "expected ptxas 12.9, with A=1 for sm_90, got ptxas 13.4"
    assert mismatch("1", [("sm_80", TOOLS)], has) == "expected ptxas 13.4 for sm_80, got none"
    assert mismatch("1", [], replace(has, problem="no Triton")) == "no Triton"


class FakeShop:
    def __init__(self, setup: Setup, workers: int) -> None:
        self.setup = setup
        self.closed = threading.Event()

    def close(self) -> None:
        self.closed.set()


@pytest.fixture
def shops(monkeypatch: pytest.MonkeyPatch) -> Workshops:
    monkeypatch.setattr("nojit.aot.remote.workshop.Workshop", FakeShop)
    return Workshops(idle_s=300)


def test_jobs_of_one_setup_share_a_workshop(shops: Workshops) -> None:
    setup = Setup("1", None, 1.0)
    with shops.open(setup, 1) as first, shops.open(setup, 1) as second:
        assert first is second
    with shops.open(setup, 1) as third:
        assert third is first
    shops.close()


def test_a_job_of_another_setup_waits_and_replaces_the_workshop(shops: Workshops) -> None:
    old, new = Setup("1", None, 1.0), Setup("1", 12040, 1.0)
    opened: list[Setup] = []

    def use() -> None:
        with shops.open(new, 1) as shop:
            opened.append(shop.setup)

    thread = threading.Thread(target=use)
    with shops.open(old, 1) as first:
        thread.start()
        shops.close()
        assert not opened
        assert not first.closed.is_set()  # type: ignore[attr-defined] # a FakeShop
    thread.join()
    assert opened == [new]
    assert first.closed.is_set()  # type: ignore[attr-defined] # as above
    shops.close()


def test_an_idle_workshop_closes(shops: Workshops) -> None:
    shops._idle_s = 0.01
    with shops.open(Setup("1", None, 1.0), 1) as shop:
        pass
    assert shop.closed.wait(10)  # type: ignore[attr-defined] # a FakeShop


def test_the_version_names_the_code(tmp_path: Path) -> None:
    assert nojit_version().startswith("0.1.0 (")
