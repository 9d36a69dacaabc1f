"""From manifests to bundle files, end to end, with a compiler that needs no Triton."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from nojit.aot.cache.cache import Cache
from nojit.aot.compile.job_runner import Finished
from nojit.aot.compile.processes.pool import WorkerPool
from nojit.aot.inspect.places import report_path
from nojit.aot.pipeline.build import BuildResult, build
from nojit.aot.pipeline.report import decode_report, encode_report
from nojit.aot.plan.planner import make_plans
from nojit.runtime.bundle.file import BundleFile
from nojit.runtime.errors import ManifestError, PackageError

from tests.aot.conftest import HEADER, ROOT
from tests.aot.fake_compiler import FakeCompiler, FakeSource

# two kernels share a helper, one has its own, one has none
MANIFEST = (
    HEADER
    + """
[[kernel]]
name = "add"
source = "demo:add"
grid = ["cdiv(n, BLOCK)"]
[kernel.params]
x = "*{dtype}"
n = "i32"
[kernel.matrix]
dtype = ["fp16", "bf16"]
[[kernel.hints]]
x = 16
[[kernel.configs]]
BLOCK = 64
[[kernel.exclude]]
when = "dtype == 'bf16' and BLOCK == 32"

[[kernel]]
name = "gelu"
source = "demo:gelu"
params = { x = "*fp16" }

[[kernel]]
name = "silu"
source = "demo:silu"
params = { x = "*fp16", m = "i32" }
tuning = { key = ["m"] }
"""
)
SOURCES = {
    "demo:add": FakeSource(("x", "n"), ("BLOCK",), helpers=("load",)),
    "demo:gelu": FakeSource(("x",), helpers=("load", "erf")),
    "demo:silu": FakeSource(("x", "m")),
}
HELPERS = {"load": "tl.load", "erf": "tl.erf"}
FILE = "demo-1.0-sm_90.nojit"


def no_executor() -> Any:
    raise AssertionError("nothing has to be compiled")


@dataclass
class Project:
    """A folder with a manifest, and everything that a build of it takes."""

    folder: Path
    compiler: FakeCompiler
    events: list[Finished] = field(default_factory=list)

    def write(self, text: str = MANIFEST) -> None:
        (self.folder / "demo.toml").write_text(text, encoding="utf-8")

    def build(
        self,
        *,
        archs: tuple[str, ...] = (),
        profile: str = "full",
        executor: Callable[[], Any] = lambda: ThreadPoolExecutor(2),
        keep_going: bool = False,
        **compiler: Any,
    ) -> BuildResult:
        """Build, and forget what earlier builds compiled."""
        self.compiler.journal.unlink(missing_ok=True)
        self.events.clear()
        fake = replace(self.compiler, **compiler)
        plans = make_plans([self.folder / "demo.toml"], archs, profile, fake)
        cache = Cache(self.folder / "cache")
        return build(plans, self.out, fake, cache, executor, keep_going=keep_going, on_event=self.events.append)

    @property
    def out(self) -> Path:
        return self.folder / "out"

    @property
    def bundle(self) -> Path:
        return self.out / FILE

    def cached(self) -> int:
        """Count the cache's entries, without what a killed writer left, whose names begin with a dot."""
        return sum(path.is_file() and path.name[0] != "." for path in (self.folder / "cache").rglob("*"))

    def compiled(self) -> list[str]:
        """Name the kernel of each variant that the last build compiled."""
        return sorted(label.split()[0] for label in self.compiler.compiled())


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path, FakeCompiler(tmp_path / "journal", SOURCES, HELPERS))
    made.write()
    return made


def listing(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


class TestFirstBuild:
    def test_writes_one_bundle_and_one_report(self, project):
        result = project.build()
        assert listing(project.out) == [FILE, "demo-1.0-sm_90.report.json"]
        assert not result.stopped
        assert result.failures == ()
        with BundleFile(project.bundle) as bundle:
            bundle.verify()
            assert bundle.kernels == ("add", "gelu", "silu")
            assert [entry.variants for entry in bundle.index.kernels] == [4, 1, 1]
            assert bundle.index.toolchain[0] == ("fake", "1.0")
            assert [name for name, _ in bundle.index.toolchain] == ["fake", "zstandard"]
            assert bundle.index.min_driver == 12000
            assert bundle.table("add").grid == ("cdiv(n, BLOCK)",)
            assert bundle.table("silu").tuning is not None

    def test_reports_what_it_did(self, project):
        (report,) = project.build().reports
        assert report == decode_report(report_path(project.bundle).read_bytes())
        with BundleFile(project.bundle) as bundle:
            assert report.digest == bundle.digest
        assert (report.path, report.arch, report.up_to_date) == (FILE, "sm_90", False)
        assert report.bundle_bytes == project.bundle.stat().st_size
        assert (report.images, report.excluded, report.failures) == (6, 0, ())
        assert report.toolchain[0] == ("fake", "1.0")
        assert len({variant.label for variant in report.variants}) == 6
        assert not any(variant.cached for variant in report.variants)
        first = report.variants[0]
        assert (first.kernel, first.registers, first.spill_bytes, first.shared_bytes) == ("add", 32, 0, 0)
        assert (first.image_bytes, first.compile_ms) == (651, 7)
        assert first.label == "add sm_90 dtype='fp16' BLOCK=64 num_warps=4 num_stages=3 num_ctas=1 x:16"

    def test_reports_variants_in_the_order_of_the_plan_not_of_the_compiler(self, project):
        (report,) = project.build().reports
        labels = [variant.label for variant in report.variants]
        plan = make_plans([project.folder / "demo.toml"], (), "full", project.compiler)[0]
        assert labels == [variant.label() for kernel in plan.kernels for variant in kernel.variants]

    def test_counts_what_was_excluded_and_what_is_shared(self, project):
        project.write(MANIFEST.replace("BLOCK == 32", "BLOCK == 64"))
        (report,) = project.build(same_image=True).reports
        assert (report.excluded, report.images, len(report.variants)) == (2, 3, 4)
        assert report.image_bytes == 3 * 651

    def test_tells_of_every_variant(self, project):
        project.build()
        assert len(project.events) == len({event.job for event in project.events}) == 6

    def test_a_bundle_per_arch(self, project):
        result = project.build(archs=("sm_80", "sm_90"))
        assert [report.path for report in result.reports] == ["demo-1.0-sm_80.nojit", FILE]
        for report in result.reports:
            with BundleFile(project.out / report.path) as bundle:
                assert bundle.index.target.arch == report.arch

    def test_the_report_is_json_for_people(self, project):
        project.build()
        text = report_path(project.bundle).read_text(encoding="utf-8")
        assert json.loads(text)["arch"] == "sm_90"
        assert text.count("\n") > 20
        assert encode_report(decode_report(text.encode())) == text.encode()


class TestSecondBuild:
    def test_compiles_nothing_and_writes_nothing(self, project):
        (first,) = project.build().reports
        before = [(path.stat().st_ino, path.stat().st_mtime_ns) for path in sorted(project.out.iterdir())]
        shutil.rmtree(project.folder / "cache")
        (second,) = project.build(executor=no_executor).reports
        assert [(path.stat().st_ino, path.stat().st_mtime_ns) for path in sorted(project.out.iterdir())] == before
        assert project.events == []
        assert second.up_to_date
        assert all(variant.cached for variant in second.variants)
        assert replace(second, up_to_date=False, variants=first.variants) == first

    def test_gives_the_same_bytes_elsewhere_and_from_the_cache(self, project):
        project.build()
        whole = project.bundle.read_bytes()
        shutil.rmtree(project.out)
        (report,) = project.build(executor=no_executor).reports
        assert project.bundle.read_bytes() == whole
        assert all(variant.cached for variant in report.variants)
        shutil.rmtree(project.out)
        shutil.rmtree(project.folder / "cache")
        project.build(executor=lambda: ThreadPoolExecutor(1))
        assert project.bundle.read_bytes() == whole

    @pytest.mark.parametrize(
        ("edit", "recompiled"),
        [
            ({"load": "tl.load, masked"}, ["add"] * 4 + ["gelu"]),
            ({"erf": "tl.erf, faster"}, ["gelu"]),
            ({"unused": "1"}, []),
        ],
    )
    def test_an_edited_helper_recompiles_exactly_what_reaches_it(self, project, edit, recompiled):
        project.build()
        before = project.bundle.read_bytes()
        (report,) = project.build(helpers=HELPERS | edit).reports
        assert project.compiled() == recompiled
        assert sorted(variant.kernel for variant in report.variants if not variant.cached) == recompiled
        assert report.up_to_date == (not recompiled)
        assert (project.bundle.read_bytes() == before) == (not recompiled)

    @pytest.mark.parametrize(
        ("old", "new", "recompiled"),
        [
            ("BLOCK = 64", "BLOCK = 128", 4),
            ("BLOCK = 64", "BLOCK = 64\nnum_warps = 8", 4),
            ("BLOCK = 64", "BLOCK = 64\nenable_fp_fusion = false", 4),
            ('"bf16"]', '"bf16", "fp32"]', 2),
            ('n = "i32"', 'n = "i64"', 4),
            ("x = 16\n", "x = 16\nn = 16\n", 2),
            # these change the bundle and no image
            ('grid = ["cdiv(n, BLOCK)"]', 'grid = ["n"]', 0),
            ('tuning = { key = ["m"] }', 'tuning = { key = ["m"], bucket = "exact" }', 0),
            ('version = "1.0"', 'version = "1.1"', 0),
            ("BLOCK = 64", 'BLOCK = 64\nrequires = "n > 4"\n[[kernel.configs]]\nBLOCK = 64', 0),
        ],
    )
    def test_an_edited_manifest_is_built_anew(self, project, old, new, recompiled):
        project.build()
        assert old in MANIFEST
        project.write(MANIFEST.replace(old, new))
        (report,) = project.build().reports
        assert len(project.compiled()) == recompiled
        assert not report.up_to_date
        with BundleFile(project.out / report.path) as bundle:
            assert bundle.digest == report.digest

    def test_an_edit_that_means_nothing_is_none(self, project):
        project.build()
        project.write("# a comment\n" + MANIFEST.replace("BLOCK = 64", "BLOCK = 0x40  # as before"))
        assert project.build(executor=no_executor).reports[0].up_to_date

    def test_another_toolchain_builds_anew(self, project):
        project.build()
        project.build(version="2.0")
        assert len(project.compiled()) == 6
        with BundleFile(project.bundle) as bundle:
            assert bundle.index.toolchain[0] == ("fake", "2.0")


class TestDamage:
    """The bundle in place is not the one that was built: it is built again, from the cache."""

    def rebuilt(self, project: Project, whole: bytes) -> None:
        (report,) = project.build(executor=no_executor).reports
        assert not report.up_to_date
        assert project.bundle.read_bytes() == whole
        assert project.build(executor=no_executor).reports[0].up_to_date

    @pytest.mark.parametrize("place", [0, 20, 70, -100, -1])
    def test_one_flipped_bit(self, project, place):
        project.build()
        whole = project.bundle.read_bytes()
        damaged = bytearray(whole)
        damaged[place] ^= 1
        project.bundle.write_bytes(damaged)
        self.rebuilt(project, whole)

    @pytest.mark.parametrize("length", [0, 10, 64, 500, -1])
    def test_truncated(self, project, length):
        project.build()
        whole = project.bundle.read_bytes()
        project.bundle.write_bytes(whole[:length])
        self.rebuilt(project, whole)

    @pytest.mark.parametrize("report", [b"", b"{}", b"garbage", b"[]", b"\xff", None])
    def test_of_the_report(self, project, report):
        project.build()
        whole = project.bundle.read_bytes()
        if report is None:
            report_path(project.bundle).unlink()
        else:
            report_path(project.bundle).write_bytes(report)
        self.rebuilt(project, whole)

    def test_the_report_of_another_bundle(self, project):
        project.build()
        whole = project.bundle.read_bytes()
        path = report_path(project.bundle)
        path.write_bytes(encode_report(replace(decode_report(path.read_bytes()), digest="0" * 64)))
        self.rebuilt(project, whole)

    def test_another_bundle_under_its_name(self, project):
        project.build()
        whole = project.bundle.read_bytes()
        project.write(MANIFEST.replace("BLOCK = 64", "BLOCK = 128"))
        project.build()
        other = project.bundle.read_bytes()
        project.write()
        assert other != whole
        self.rebuilt(project, whole)

    def test_of_the_cache_is_compiled_again(self, project):
        project.build()
        whole = project.bundle.read_bytes()
        project.bundle.unlink()
        for entry in (project.folder / "cache").rglob("*"):
            if entry.is_file():
                entry.write_bytes(b"garbage")
        project.build()
        assert len(project.compiled()) == 6
        assert project.bundle.read_bytes() == whole


BF16_FAILS = {"dtype='bf16'": "fail"}


class TestFailures:
    def test_write_nothing_without_keep_going(self, project):
        result = project.build(mishaps=BF16_FAILS)
        assert result.stopped
        assert not project.out.exists()
        (failure,) = result.failures
        assert failure.label.startswith("add sm_90 dtype='bf16' BLOCK=64")
        assert (failure.where, failure.log) == ("fake.py:1", "line 1\nline 2")
        assert failure.message == "expected to compile, got a fake failure - at fake.py:1"

    def test_leave_the_old_bundle_alone(self, project):
        project.build()
        before = {path: path.read_bytes() for path in project.out.iterdir()}
        project.write(MANIFEST.replace("BLOCK = 64", "BLOCK = 128"))
        assert project.build(mishaps=BF16_FAILS).stopped
        assert {path: path.read_bytes() for path in project.out.iterdir()} == before

    def test_keep_what_compiled_for_the_next_try(self, project):
        project.build(mishaps=BF16_FAILS, executor=lambda: ThreadPoolExecutor(1))
        kept = {event.job.variant.label() for event in project.events if event.error is None}
        project.build()
        assert kept.isdisjoint(project.compiler.compiled())
        assert len(project.compiled()) == 6 - len(kept)

    def test_are_left_out_with_keep_going(self, project):
        result = project.build(mishaps=BF16_FAILS, keep_going=True)
        assert not result.stopped
        assert len(result.failures) == 2
        (report,) = result.reports
        assert len(report.variants) == 4
        assert decode_report(report_path(project.bundle).read_bytes()) == report
        with BundleFile(project.bundle) as bundle:
            bundle.verify()
            assert [entry.variants for entry in bundle.index.kernels] == [2, 1, 1]

    def test_are_tried_again_by_the_next_build(self, project):
        project.build(mishaps=BF16_FAILS, keep_going=True)
        partial = project.bundle.read_bytes()
        (report,) = project.build(mishaps=BF16_FAILS, keep_going=True).reports
        assert project.compiled() == ["add", "add"]
        assert not report.up_to_date
        assert project.bundle.read_bytes() == partial
        (report,) = project.build().reports
        assert project.compiled() == ["add", "add"]
        assert len(report.variants) == 6
        assert project.build(executor=no_executor).reports[0].up_to_date

    def test_of_every_variant_of_a_kernel_leave_the_kernel_out(self, project):
        project.build(mishaps={"gelu": "fail"}, keep_going=True)
        with BundleFile(project.bundle) as bundle:
            assert bundle.kernels == ("add", "silu")

    def test_of_every_variant_write_a_report_and_no_bundle(self, project):
        (report,) = project.build(mishaps={"sm_90": "fail"}, keep_going=True).reports
        assert listing(project.out) == ["demo-1.0-sm_90.report.json"]
        assert (report.digest, report.bundle_bytes, len(report.failures)) == ("", 0, 6)

    def test_on_one_arch_do_not_touch_the_other_with_keep_going(self, project):
        project.build(archs=("sm_80", "sm_90"), mishaps={"sm_80 dtype": "fail"}, keep_going=True)
        for arch, variants in (("sm_80", 2), ("sm_90", 6)):
            with BundleFile(project.out / f"demo-1.0-{arch}.nojit") as bundle:
                assert sum(entry.variants for entry in bundle.index.kernels) == variants

    def test_a_bug_of_the_compiler_writes_nothing(self, project):
        with pytest.raises(ZeroDivisionError):
            project.build(mishaps={"gelu": "bug"}, keep_going=True)
        assert not project.out.exists()


def test_an_arch_without_variants_gives_a_report_and_no_bundle(project):
    project.write(
        MANIFEST.replace('name = "add"', 'name = "add"\ncore = "false"').split('[[kernel]]\nname = "gelu"')[0]
    )
    result = project.build(profile="core", executor=no_executor)
    assert [report.digest for report in result.reports] == [""]
    assert listing(project.out) == ["demo-1.0-sm_90.report.json"]
    assert not result.stopped


def test_a_place_that_cannot_be_written(project):
    project.out.write_bytes(b"a file")
    with pytest.raises(PackageError, match="expected a folder to write to, got a file"):
        project.build()


@pytest.mark.usefixtures("workers_find_tests")
class TestInWorkers:
    def test_crashes_and_exits_cost_their_variants_alone(self, project):
        mishaps = {"gelu": "segv", "dtype='bf16' BLOCK=64 num_warps=4 num_stages=3 num_ctas=1 x:16": "exit"}
        result = project.build(mishaps=mishaps, keep_going=True, executor=lambda: WorkerPool(2, 60))
        assert sorted(failure.message.partition(" - at ")[0] for failure in result.failures) == [
            "expected the compiler to finish; nojit build --keep-going builds the other variants, got SIGSEGV",
            "expected the compiler to finish; nojit build --keep-going builds the other variants, got exit code 3",
        ]
        assert all(failure.label in failure.where for failure in result.failures)
        with BundleFile(project.bundle) as bundle:
            assert [entry.variants for entry in bundle.index.kernels] == [3, 1]

    def test_the_number_of_workers_changes_nothing(self, project):
        project.build(executor=lambda: WorkerPool(1, 60))
        whole = project.bundle.read_bytes()
        shutil.rmtree(project.out)
        shutil.rmtree(project.folder / "cache")
        project.build(executor=lambda: WorkerPool(3, 60))
        assert project.bundle.read_bytes() == whole


SCRIPT = """
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tests.aot.pipeline.test_build import HELPERS, SOURCES, Project
from tests.aot.fake_compiler import FakeCompiler
folder = Path(sys.argv[1])
Project(folder, FakeCompiler(folder / "journal", SOURCES, HELPERS)).build(executor=lambda: ThreadPoolExecutor(1))
"""


CROWD = """
import os, signal, sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tests.aot.fake_compiler import FakeCompiler
from tests.aot.pipeline.test_build import HELPERS, SOURCES, Project

folder = Path(sys.argv[1])
children = []
for number in range(100):
    if (pid := os.fork()) == 0:
        signal.alarm(60)
        code = 1
        try:
            # a journal each: what matters is that none of them fails
            compiler = FakeCompiler(folder / f"journal{number}", SOURCES, HELPERS)
            Project(folder, compiler).build(executor=lambda: ThreadPoolExecutor(1))
            code = 0
        finally:
            sys.stderr.flush()
            os._exit(code)
    children.append(pid)
codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
sys.exit(f"exit codes {codes}" if any(codes) else 0)
"""


@pytest.mark.slow
def test_a_hundred_builders_share_one_cache_and_one_folder(project):
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", CROWD, project.folder], cwd=ROOT, env=environment, check=True, timeout=600)
    assert listing(project.out) == [FILE, "demo-1.0-sm_90.report.json"]
    assert project.build(executor=no_executor).reports[0].up_to_date
    assert project.cached() == 6


def strace_works() -> bool:
    if shutil.which("strace") is None:
        return False
    return subprocess.run(["strace", "-o", os.devnull, "true"], capture_output=True, check=False).returncode == 0


@pytest.mark.slow
@pytest.mark.skipif(not strace_works(), reason="strace is absent or may not trace")
@pytest.mark.parametrize("call", ["rename", "fsync", "write"])
def test_a_build_killed_at_any_step_is_resumed(project, call):
    """Kill a whole build at its nth call of one kind, for every n; the next build ends as if nothing had been."""
    project.build()
    whole, old = project.bundle.read_bytes(), b""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    for nth in range(1, 100):
        shutil.rmtree(project.out)
        shutil.rmtree(project.folder / "cache")
        project.write(MANIFEST.replace("BLOCK = 64", "BLOCK = 32"))
        project.build()
        old = project.bundle.read_bytes()
        cached_before = project.cached()
        project.write()
        # -B: a cached module is written by a rename too
        ran = subprocess.run(
            ["strace", "-f", "-o", os.devnull, "-e", f"trace={call}", "-e", f"inject={call}:signal=KILL:when={nth}",
             sys.executable, "-B", "-c", SCRIPT, project.folder],
            cwd=ROOT, env=environment, capture_output=True, check=False, timeout=600,
        )  # fmt: skip
        assert ran.returncode in {0, -9}, ran.stderr
        assert project.bundle.read_bytes() in {old, whole}
        with BundleFile(project.bundle) as bundle:
            bundle.verify()
        stored = project.cached() - cached_before
        project.build()
        assert project.bundle.read_bytes() == whole
        # all four variants of `add`, but for those that the killed build had stored
        assert len(project.compiled()) == 4 - stored
        if ran.returncode == 0:
            break
    # four new cache entries, a bundle, a report; both files and their folder are synced, cache entries are not
    assert nth > {"rename": 6, "fsync": 3, "write": 6}[call]


class PickyCompiler(FakeCompiler):
    """Refuses what two kernels ask of it."""

    def variant_key(self, variant, source, place):
        if variant.kernel in ("gelu", "silu"):
            where = f"{place.where}: {variant.label()}"
            raise ManifestError("expected options that Triton takes", got="clc", where=where)
        return super().variant_key(variant, source, place)


def test_what_a_toolchain_refuses_of_manifests_is_told_at_once_with_its_lines(project):
    picky = PickyCompiler(project.compiler.journal, SOURCES, HELPERS)
    plans = make_plans([project.folder / "demo.toml"], (), "full", picky)
    with pytest.raises(ManifestError) as caught:
        build(plans, project.out, picky, Cache(project.folder / "cache"), no_executor)
    found = [(each.key, each.line > 0, each.got.partition(" sm_90")[0]) for each in caught.value.mistakes]
    assert found == [("$.kernel[1]", True, "clc, of gelu"), ("$.kernel[2]", True, "clc, of silu")]
