"""Builds by tuned tables: what is built of a tuned kernel, what its bundle says, which tables are refused."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nojit.aot.cache.cache import Cache
from nojit.aot.manifest.options import OPTIONS
from nojit.aot.pipeline.build import build
from nojit.aot.plan.plan import Plan
from nojit.aot.plan.planner import make_plans
from nojit.aot.variants.tuned_tables import check_tuned, expand_tuned
from nojit.runtime.base.launch_options import TUNABLE
from nojit.runtime.bundle.file import BundleFile
from nojit.runtime.errors import NojitError, TuningError
from nojit.runtime.table.table import KernelTable
from nojit.runtime.table.tuning import TuningTable
from nojit.runtime.tuning.tuned_tables import TunedConfig, TunedDevice, TunedEntry, TunedRow, TunedTable

from tests.aot.conftest import HEADER
from tests.aot.entries import spec
from tests.aot.fake_compiler import FakeCompiler, FakeSource

MANIFEST = (
    HEADER
    + """
[[kernel]]
name = "add"
source = "demo:add"
grid = ["cdiv(n, BLOCK)"]
core = "dtype == 'fp16'"
[kernel.params]
x = "*{dtype}"
n = "i32"
[kernel.matrix]
dtype = ["fp16", "bf16", "fp32"]
[[kernel.hints]]
x = 16
n = 16
[[kernel.hints]]
x = 16
[[kernel.configs]]
BLOCK = 64
[[kernel.configs]]
BLOCK = 32
requires = "n > 4"
[kernel.tuning]
key = ["n"]
"""
)
DEVICE = """
[device]
name = "NVIDIA H200"
arch = "sm_90"
multiprocessors = 132
memory_bytes = 150754820096
"""
TABLE = (
    'schema = 1\nkernel = "add"\nkey = ["n"]\n'
    + DEVICE
    + """
[[config]]
BLOCK = 128
num_warps = 8
[[config]]
BLOCK = 256
num_warps = 4
[[config]]
BLOCK = 512
requires = "n > 4"

[[entry]]
where = { dtype = ["fp16", "bf16"] }
rows = [
    { at = [1024], use = [2, 0], us = [1.0, 2.0] },
    { at = [4096], use = [1, 0, 2] },
    { at = [65536], use = [2, 1] },
]
"""
)


@dataclass
class Project:
    """A folder with a manifest and tuned tables."""

    folder: Path
    constexprs: tuple[str, ...] = ("BLOCK",)

    @property
    def compiler(self) -> FakeCompiler:
        return FakeCompiler(self.folder / "journal", {"demo:add": FakeSource(("x", "n"), self.constexprs)})

    def tune(self, text: str = TABLE, name: str = "add.nvidia-h200.toml") -> None:
        (self.folder / "tuned").mkdir(exist_ok=True)
        (self.folder / "tuned" / name).write_text(text, encoding="utf-8")

    def write(self, text: str, name: str = "demo.toml") -> None:
        (self.folder / name).write_text(text, encoding="utf-8")

    def plan(self, profile: str = "full", **facts: Any) -> Plan:
        (plan,) = make_plans([self.folder / "demo.toml"], ["sm_90"], profile, self.compiler, **facts)
        return plan

    def build(self, profile: str = "full", **compiler: Any) -> KernelTable:
        fake = replace(self.compiler, **compiler)
        build([self.plan(profile)], self.folder, fake, Cache(self.folder / "cache"), lambda: ThreadPoolExecutor(1), keep_going=True)  # fmt: skip
        with BundleFile(self.folder / "demo-1.0-sm_90.nojit") as bundle:
            bundle.verify()
            return bundle.table("add")

    def refusal(self, **facts: Any) -> str:
        with pytest.raises(NojitError) as caught:
            self.plan(**facts)
        return str(caught.value).replace(str(self.folder), ".")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path)
    made.write(MANIFEST)
    return made


def built(plan: Plan, dtype: str) -> list[tuple[int, int]]:
    """For each variant of a case, its block and how many hints it has."""
    variants = [variant for kernel in plan.kernels for variant in kernel.variants]
    of_dtype = [variant for variant in variants if dict(variant.axes)["dtype"] == dtype]
    return [(int(str(dict(v.config.constexprs)["BLOCK"])), len(v.hints)) for v in of_dtype]


def tables(table: KernelTable) -> tuple[TuningTable, ...]:
    assert table.tuning is not None
    return table.tuning.tables


def order(table: KernelTable) -> list[list[tuple[tuple[int, ...], list[Any]]]]:
    """For each block of the first tuning table, each row's key and the BLOCKs in order."""
    return [
        [(row.at, [dict(table.configs[number].constexprs)["BLOCK"] for number in row.use]) for row in block.rows]
        for block in tables(table)[0].blocks
    ]


UNTUNED = [(64, 2), (64, 1), (64, 0), (32, 2), (32, 1), (32, 0)]


class TestVariants:
    def test_without_tables_the_manifest_says(self, project):
        assert built(project.plan(), "fp16") == UNTUNED

    def test_a_covered_case_has_the_tables_configs_the_most_often_best_first(self, project):
        project.tune()
        # without hints: the one that is most often best of those that require nothing
        expected = [(512, 2), (512, 1), (256, 2), (256, 1), (256, 0), (128, 2), (128, 1)]
        assert built(project.plan(), "fp16") == built(project.plan(), "bf16") == expected

    def test_another_case_keeps_the_manifests(self, project):
        project.tune()
        assert built(project.plan(), "fp32") == UNTUNED

    def test_core_keeps_the_best_and_the_one_that_serves_every_call(self, project):
        project.tune()
        plan = project.plan("core")
        assert built(plan, "fp16") == [(512, 2), (512, 1), (256, 2), (256, 1), (256, 0)]
        assert built(plan, "bf16") == built(plan, "fp32") == []

    def test_core_can_go_by_the_manifests_configs(self, project):
        project.tune()
        project.write(MANIFEST.replace("core = \"dtype == 'fp16'\"", "core = \"dtype == 'fp16' and BLOCK == 32\""))
        assert built(project.plan("core"), "fp16") == [(512, 2), (512, 1), (256, 2), (256, 1), (256, 0)]
        assert built(project.plan("core"), "fp32") == []

    def test_if_all_require_something_the_manifest_serves_the_rest(self, project):
        project.tune(TABLE.replace("use = [2, 0]", "use = [2]").replace("[1, 0, 2]", "[2]").replace("[2, 1]", "[2]").replace("us = [1.0, 2.0]", "us = [1.0]"))  # fmt: skip
        assert built(project.plan(), "fp16") == [(512, 2), (512, 1), (64, 2), (64, 1), (64, 0)]

    def test_the_manifest_can_serve_what_no_hint_holds_for(self, project):
        project.tune()
        project.write(MANIFEST.replace("[kernel.tuning]\n", '[kernel.tuning]\nunaligned = "by_hand"\n'))
        aligned = [(512, 2), (512, 1), (256, 2), (256, 1), (128, 2), (128, 1)]
        assert built(project.plan(), "fp16") == [*aligned, (64, 0)]
        assert built(project.plan("core"), "fp16") == [(512, 2), (512, 1), (64, 0)]

    def test_tables_of_two_devices_add_up(self, project):
        project.tune()
        other = TABLE.replace("H200", "H100").replace("BLOCK = 512", "BLOCK = 1024")
        project.tune(other, "add.nvidia-h100.toml")
        assert {block for block, _ in built(project.plan(), "fp16")} == {128, 256, 512, 1024}
        assert [each.device.name for each in tables(project.build())] == ["NVIDIA H100", "NVIDIA H200"]

    def test_a_table_of_another_arch_says_nothing(self, project):
        project.tune(TABLE.replace("sm_90", "sm_80"))
        assert built(project.plan(), "fp16") == UNTUNED

    def test_the_first_entry_that_covers_a_case_counts(self, project):
        project.tune(TABLE + '[[entry]]\nwhere = { dtype = ["bf16", "fp32"] }\nrows = [{ at = [1], use = [0] }]\n')
        assert built(project.plan(), "bf16") == built(project.plan(), "fp16")
        assert {block for block, _ in built(project.plan(), "fp32")} == {128}

    def test_tables_can_be_ignored(self, project):
        project.tune()
        assert built(project.plan(tuned=False), "fp16") == UNTUNED

    def test_a_tuning_bundle_ignores_them(self, project):
        project.tune()
        project.write(MANIFEST + "[[kernel.tuning.space]]\nBLOCK = 16\n")
        assert {block for block, _ in built(project.plan(tuning=True), "fp16")} == {64, 32, 16}


ENTRY = spec(
    params={"x": "*fp16", "n": "i32"},
    hints=[{"x": 16, "n": 16}],
    configs=[{"BLOCK": 64}, {"BLOCK": 32, "requires": "n > 4"}],
    derived={"EVEN": "n % BLOCK == 0"},
    tuning={"key": ["n"]},
)
H200 = TunedDevice("NVIDIA H200", "sm_90", 132, 150754820096)


@given(
    requires=st.lists(st.sampled_from(["", "n > 4", "aligned(x, 16)"]), min_size=1, max_size=5),
    uses=st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=5, unique=True), min_size=1, max_size=4),
    profile=st.sampled_from(["core", "full"]),
)
def test_every_call_is_served_by_one_config_that_is_best_most_often(requires, uses, profile):
    configs = tuple(TunedConfig((("BLOCK", 128 + i),), rule) for i, rule in enumerate(requires))
    rows = [TunedRow((at,), tuple(n for n in use if n < len(configs)) or (0,), ()) for at, use in enumerate(uses)]
    table = check_tuned(TunedTable("k", ("n",), H200, (), configs, (TunedEntry((), tuple(rows)),)), ENTRY)
    variants = expand_tuned(ENTRY, "sm_90", "here", profile, [table]).variants
    used = {128 + n for row in rows for n in row.use}
    firsts = [row.use[0] for row in rows]
    built = {dict(v.config.constexprs)["BLOCK"] for v in variants}
    serving = {dict(v.config.constexprs)["BLOCK"] for v in variants if not (v.hints or v.config.requires)}
    free = [n for n in range(len(configs)) if not requires[n] and 128 + n in used]
    assert len(serving) == 1
    assert serving == {64} if not free else firsts.count(serving.copy().pop() - 128) == max(map(firsts.count, free))
    assert any(firsts.count(block - 128) == max(map(firsts.count, firsts)) for block in built)
    assert built - serving <= used if profile == "core" else built == used | serving
    assert len(built) <= 2 or profile == "full"
    assert {dict(v.derived)["EVEN"] for v in variants} == {True, False}


class TestBundles:
    def test_hold_the_tables(self, project):
        project.tune()
        table = project.build()
        rows = [((1024,), [512, 128]), ((4096,), [256, 128, 512]), ((65536,), [512, 256])]
        assert order(table) == [rows]
        assert tables(table)[0].device.multiprocessors == 132

    @pytest.mark.parametrize("own", [(), ("num_warps",), ("maxnreg", "num_stages", "launch_pdl")], ids=str)
    def test_hold_them_where_options_are_constexprs_or_set_by_the_manifest(self, project, own):
        project.constexprs = ("BLOCK", *own)
        project.write(MANIFEST.replace("BLOCK = 64\n", "BLOCK = 64\nlaunch_pdl = true\n"))
        project.tune()
        table = project.build()
        assert order(table) == [[((1024,), [512, 128]), ((4096,), [256, 128, 512]), ((65536,), [512, 256])]]
        for config in table.configs:
            assert [name for name, _ in config.constexprs if name != "BLOCK"] == sorted(own, key=list(OPTIONS).index)
            assert {*own} | dict(config.options).keys() == {*TUNABLE, "launch_pdl"}

    def test_of_core_hold_what_is_built(self, project):
        project.tune()
        assert order(project.build("core")) == [[((1024,), [512]), ((4096,), [256, 512]), ((65536,), [512, 256])]]

    def test_leave_out_what_failed(self, project):
        project.tune()
        table = project.build(mishaps={"BLOCK=512": "fail"})
        assert order(table) == [[((1024,), [128]), ((4096,), [256, 128]), ((65536,), [256])]]

    def test_without_tables_have_a_key(self, project):
        tuning = project.build().tuning
        assert (tuning.key, tuning.bucket, tuning.tables) == (("n",), "quarter_pow2", ())

    def test_are_built_anew_when_a_table_changes(self, project):
        project.tune()
        first = project.build()
        assert project.build() == first
        project.tune(TABLE.replace("at = [1024]", "at = [2048]"))
        assert order(project.build())[0][0] == ((2048,), [512, 128])

    def test_do_not_depend_on_where_the_tables_lie_or_who_made_them(self, project, tmp_path):
        project.tune()
        project.build()
        first = (tmp_path / "demo-1.0-sm_90.nojit").read_bytes()
        elsewhere = Project(tmp_path / "elsewhere")
        elsewhere.folder.mkdir()
        elsewhere.write(MANIFEST)
        elsewhere.tune(TABLE.replace("[[config]]", '[origin]\ntool = "a"\n\n[[config]]', 1), "other.toml")
        elsewhere.build()
        assert (elsewhere.folder / "demo-1.0-sm_90.nojit").read_bytes() == first


class TestRefusals:
    @pytest.mark.parametrize(
        ("old", "new", "expected"),
        [
            ('kernel = "add"', 'kernel = "ad"', "expected a kernel of the manifests, got 'ad'; did you mean 'add'? - at ./tuned/add.nvidia-h200.toml $.kernel"),
            ('key = ["n"]', 'key = ["n * n"]', "expected the key that the manifest has for add, n: select again with nojit tune select, got n * n - at ./tuned/add.nvidia-h200.toml $.key"),
            ("dtype = [", "dtyp = [", "expected an axis of kernel add, got 'dtyp'; did you mean 'dtype'? - at ./tuned/add.nvidia-h200.toml $.entry[0].where"),
            ('"bf16"]', '"bf17"]', "expected a value of axis 'dtype' of kernel add, ['fp16', 'bf16', 'fp32'], got 'bf17' - at ./tuned/add.nvidia-h200.toml $.entry[0].where.dtype"),
            ("BLOCK = 128", "BLOK = 128", "expected a tunable of kernel add, got 'BLOK'; did you mean 'BLOCK'? - at ./tuned/add.nvidia-h200.toml $.config[0].BLOK"),
            ("BLOCK = 128\n", "", "expected a value for 'BLOCK', as the manifest's configs have, got none - at ./tuned/add.nvidia-h200.toml $.config[0]"),
            ("BLOCK = 128", 'BLOCK = "128"', "expected an int, as the manifest gives 'BLOCK', got a string - at ./tuned/add.nvidia-h200.toml $.config[0].BLOCK"),
            ("num_warps = 8", "num_warps = 7", "got 7 - at ./tuned/add.nvidia-h200.toml $.config[0].num_warps"),
            ("num_warps = 8", "enable_fp_fusion = true", "expected a tunable of kernel add, got 'enable_fp_fusion'"),
            ('requires = "n > 4"', 'requires = "m > 4"', "expected a param, constexpr or axis, got 'm' - at ./tuned/add.nvidia-h200.toml $.config[2].requires"),
            ('arch = "sm_90"', 'arch = "sm_91"', "got 'sm_91'; did you mean 'sm_90'? - at ./tuned/add.nvidia-h200.toml $.device.arch"),
            ("schema = 1", "schema = 2", "./tuned/add.nvidia-h200.toml"),
        ],
    )  # fmt: skip
    def test_name_the_file(self, project, old, new, expected):
        assert old in TABLE
        project.tune(TABLE.replace(old, new, 1))
        assert expected in project.refusal()

    def test_of_two_tables_of_one_device(self, project):
        project.tune()
        project.tune(name="second.toml")
        assert project.refusal() == "expected one table of kernel 'add' for NVIDIA H200: delete or move the other, got ./tuned/add.nvidia-h200.toml too - at ./tuned/second.toml"  # fmt: skip

    def test_of_a_kernel_without_tuning(self, project):
        project.tune()
        project.write(MANIFEST.partition("[kernel.tuning]")[0])
        assert "expected the key that the manifest has for add, none" in project.refusal()

    def test_no_table_of_a_manifest_that_is_left_out(self, project):
        project.write(MANIFEST.replace('"add"', '"sub"'), "sub.toml")
        project.tune(TABLE.replace('"add"', '"sub"'))
        assert built(project.plan(), "fp16") == UNTUNED

    def test_a_file_that_cannot_be_read(self, project):
        project.tune()
        (project.folder / "tuned" / "folder.toml").mkdir()
        assert "expected a tuned table, got a folder" in project.refusal()
        with pytest.raises(TuningError):
            project.plan()
