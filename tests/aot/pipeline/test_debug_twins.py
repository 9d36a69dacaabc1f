"""Bundles with line info beside their bundles: what is in them, when they are built anew, what their report says."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from nojit.aot.backends.cuda.vendor import code_of
from nojit.aot.cache.cache import Cache
from nojit.aot.inspect.places import report_path
from nojit.aot.pipeline.build import BuildResult, build
from nojit.aot.pipeline.debug_twins import FOLDER, compare_twins, twin_plans
from nojit.aot.pipeline.report import decode_report
from nojit.aot.plan.planner import make_plans
from nojit.runtime.bundle.file import BundleFile
from nojit.runtime.discovery.debug_twins import twin_inputs

from tests.aot.cli.conftest import MANIFEST, demo_compiler
from tests.support.cubins import CubinSpec, build_cubin

FILE = "demo-1.0-sm_90.nojit"
TWIN = "demo-debug-1.0-sm_90.nojit"


@pytest.fixture
def manifest(write_manifest: Callable[..., Path]) -> Path:
    return write_manifest(MANIFEST)


def open_executor() -> AbstractContextManager[Any]:
    return ThreadPoolExecutor(1)


def make(manifest: Path, *, keep_going: bool = False, **facts: Any) -> tuple[BuildResult, BuildResult, int]:
    """Build bundle and twin; also how many variants were compiled for the twin."""
    folder = manifest.parent
    compiler, cache, out = demo_compiler(folder, **facts), Cache(folder / "cache"), folder / "out"
    plans = make_plans([manifest], (), "full", compiler)
    result = build(plans, out, compiler, cache, open_executor, keep_going=keep_going)
    compiler.journal.unlink(missing_ok=True)
    twins = twin_plans(plans, result, out)
    built = build(twins, out / FOLDER, compiler, cache, open_executor, keep_going=keep_going)
    return result, compare_twins(plans, built, out), len(compiler.compiled())


def test_a_twin_is_known_by_its_bundles_inputs(manifest: Path) -> None:
    _, twins, compiled = make(manifest)
    assert compiled == 9
    out = manifest.parent / "out"
    with BundleFile(out / FILE) as bundle, BundleFile(out / FOLDER / TWIN) as twin:
        assert twin.index.inputs == twin_inputs(bundle.index.inputs)
        assert twin.index.name == "demo-debug"
        assert twin.kernels == bundle.kernels
        for name in twin.kernels:
            rows = range(len(twin.table(name)))
            assert [twin.table(name).variant_id(row) for row in rows] == [
                bundle.table(name).variant_id(row) for row in rows
            ]
        assert all(image.endswith(b"line 1") for image in twin.images())
    assert [report.path for report in twins.reports] == [TWIN]


def test_line_info_changes_nothing_of_the_bundle(manifest: Path) -> None:
    make(manifest)
    path = manifest.parent / "out" / FILE
    before = path.read_bytes()
    path.unlink()
    make(manifest, first_line=20)
    assert path.read_bytes() == before


def test_a_twin_is_up_to_date_until_lines_move(manifest: Path) -> None:
    make(manifest)
    result, twins, compiled = make(manifest)
    assert (twins.reports[0].up_to_date, compiled) == (True, 0)
    result, twins, compiled = make(manifest, first_line=2)
    assert result.reports[0].up_to_date
    assert (twins.reports[0].up_to_date, compiled) == (False, 9)
    with BundleFile(manifest.parent / "out" / FOLDER / TWIN) as twin:
        assert all(image.endswith(b"line 2") for image in twin.images())


def test_the_report_lists_what_runs_other_code(manifest: Path) -> None:
    # the fake's images are no cubins: all of their bytes are code
    _, twins, _ = make(manifest)
    (report,) = twins.reports
    assert len(report.code_differs) == 9
    assert sum(label.startswith("neg ") for label in report.code_differs) == 1
    assert decode_report(report_path(manifest.parent / "out" / FOLDER / TWIN).read_bytes()) == report
    _, again, _ = make(manifest)
    assert again.reports[0].code_differs == report.code_differs


def test_sections_of_code_alone_count() -> None:
    spec = CubinSpec("k", (8, 4), 4, 1, code=b"a" * 64)
    one = build_cubin(spec)
    assert code_of(one) == {b".text.k": b"a" * 64}


def test_a_failed_bundle_has_no_twin(manifest: Path) -> None:
    result, twins, _ = make(manifest, mishaps={"neg": "fail"})
    assert result.failures
    assert twins.reports == ()


def test_a_partial_bundle_has_a_partial_twin_that_is_its_own(manifest: Path) -> None:
    make(manifest, keep_going=True, mishaps={"neg": "fail"})
    out = manifest.parent / "out"
    with BundleFile(out / FILE) as bundle, BundleFile(out / FOLDER / TWIN) as twin:
        assert twin.kernels == bundle.kernels == ("add",)
        # what failed without line info failed with it: not the whole twin, and so known for nobody's
        assert twin.index.inputs != twin_inputs(bundle.index.inputs)
