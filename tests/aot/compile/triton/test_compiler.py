"""The door to Triton: what a kernel's source says, what a variant's key covers, what a compiled variant tells."""

from __future__ import annotations

import tempfile
import textwrap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import triton
from nojit.aot.backends.hip.options import OPTIONS as AMDS_OPTIONS
from nojit.aot.compile.sources import source_import
from nojit.aot.compile.triton import compiler, functions, keys
from nojit.aot.compile.triton.compiler import compile_variant, describe, min_driver, toolchain, variant_key
from nojit.aot.manifest.options import OPTIONS, TOOLCHAIN, Option
from nojit.aot.plan.function_facts import SourcePlace
from nojit.aot.plan.variant_fit import fit_variant
from nojit.aot.variants.expand import expand_kernel
from nojit.aot.variants.variant import CompiledVariant, Variant
from nojit.runtime.bundle.cubin import read_cubin
from nojit.runtime.bundle.format import GLOBAL_SCRATCH, PROFILE_SCRATCH
from nojit.runtime.errors import CompileError, ManifestError
from nojit.runtime.table.parts import MISSING, Param, Slot
from nojit.runtime.values import DType, FunctionRef
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import CUDAOptions
from triton.runtime.driver import driver as active_driver

from tests.aot.entries import spec

pytestmark = pytest.mark.triton

HEADER = "import triton\nimport triton.language as tl\n"
SOURCE = (
    HEADER
    + """
SCALE = tl.constexpr(2)
WIDTH = tl.constexpr(64)
UNUSED = tl.constexpr(1)


@triton.jit
def _inner(x):
    return x + 1.5


@triton.jit
def _outer(x):
    return _inner(x) * SCALE


@triton.jit
def _unrelated(x):
    return x - 1


@triton.jit
def scale(x_ptr, out_ptr, n, BLOCK: tl.constexpr = WIDTH):
    lanes = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + lanes, mask=lanes < n)
    tl.store(out_ptr + lanes, _outer(x), mask=lanes < n)
"""
)
SCALE_ENTRY: dict[str, Any] = {
    "source": "source.py:scale",
    "params": {"x_ptr": "*fp32", "out_ptr": "*fp32", "n": "i32"},
    "configs": [{"BLOCK": 128}],
}
SCRATCH = (Slot(GLOBAL_SCRATCH, "*i8"), Slot(PROFILE_SCRATCH, "*i8"))

Place = Callable[..., SourcePlace]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Write a source file into a folder of its own, where nothing has been imported from, and point at a function."""
    folders = iter(range(1000))

    def make(source: str = SOURCE, function: str = "scale", **files: str) -> SourcePlace:
        folder = tmp_path / f"folder{next(folders)}"
        folder.mkdir()
        for name, text in {"source": source, **files}.items():
            (folder / f"{name}.py").write_text(text, encoding="utf-8")
        return SourcePlace(f"source.py:{function}", folder, "demo.toml kernel k")

    return make


def variant_of(arch: str = "sm_90", **fields: Any) -> Variant:
    """The first variant of an entry: the one with hints, if it has any."""
    return expand_kernel(spec(**SCALE_ENTRY | fields), arch, "here").variants[0]


class TestDescribe:
    def test_a_function_of_a_module(self):
        source = describe(
            SourcePlace("nojit.kernels.pointwise.kernel_generated:vector_add_fwd_kernel", Path("/nowhere"), "here")
        )
        assert source.name == "vector_add_fwd_kernel"
        assert source.params == (
            *(Param(name, constexpr=False) for name in ("input_ptr", "other_ptr", "out_ptr", "n")),
            *(Param(name, constexpr=True) for name in ("BLOCK", "TILES", "STREAM")),
        )
        assert source.unspecialized == frozenset()
        assert len(source.digest) == 64

    def test_a_function_of_a_file(self, place):
        source = describe(place())
        assert (source.name, [param.name for param in source.params]) == ("scale", ["x_ptr", "out_ptr", "n", "BLOCK"])
        assert source.params[-1] == Param("BLOCK", constexpr=True, default=64)

    def test_files_of_one_name_do_not_meet(self, place):
        other = SOURCE.replace("n, BLOCK", "m, BLOCK").replace("< n", "< m")
        assert [param.name for param in describe(place()).params][2] == "n"
        assert [param.name for param in describe(place(other)).params][2] == "m"

    def test_a_file_may_import_its_neighbours(self, place):
        source = "from neighbour_of_scale import *\n"
        assert describe(place(source, neighbour_of_scale=SOURCE)).name == "scale"

    def test_defaults_that_a_bundle_can_carry(self, place):
        source = HEADER + textwrap.dedent("""
            @triton.jit
            def k(a: tl.constexpr = 1, b: tl.constexpr = None, c: tl.constexpr = "x", d: tl.constexpr = True,
                  e: tl.constexpr = 1.5, f: tl.constexpr = tl.float16):
                pass
        """)
        defaults = [param.default for param in describe(place(source, "k")).params]
        assert defaults == [1, None, "x", True, 1.5, MISSING]
        assert defaults[3] is True

    def test_params_that_are_not_specialized(self, place):
        source = HEADER + '\n\n@triton.jit(do_not_specialize=["n"])\ndef k(x, n):\n    pass\n'
        assert describe(place(source, "k")).unspecialized == {"n"}

    @pytest.mark.parametrize(
        "decorators",
        [
            "@triton.autotune(configs=[triton.Config({'B': 1})], key=['n'])\n@triton.jit",
            "@triton.heuristics({'B': lambda args: 1})\n@triton.jit",
            "@triton.autotune(configs=[triton.Config({})], key=[])\n@triton.heuristics({'B': lambda args: 1})\n@triton.jit",
        ],
    )
    def test_autotuners_and_heuristics_are_unwrapped(self, place, decorators, monkeypatch):
        # an autotuner asks the active driver for its benchmarker unless it is given one; no driver may be touched
        kernel = "\ndef k(x, n, B: tl.constexpr):\n    pass\n"
        decorators = decorators.replace("key=", "do_bench=lambda *a, **k: 0.0, key=")
        wrapped = describe(place(f"{HEADER}\n\n{decorators}{kernel}", "k"))
        assert [param.name for param in wrapped.params] == ["x", "n", "B"]

    @pytest.mark.parametrize(
        ("spelling", "message"),
        [
            ("no_such_module_of_anyone:k", "expected to import no_such_module_of_anyone, got ModuleNotFoundError: No module named"),
            ("absent.py:scale", "expected a source file: correct `source` in the manifest, got no file "),
            ("source.py:scael", "expected a function of source.py, got 'scael'; did you mean 'scale'? - at demo.toml kernel k"),
            ("source.py:zebra", "expected a function of source.py, got 'zebra' - at demo.toml kernel k"),
            ("source.py:SCALE", "expected a @triton.jit function, got constexpr source.py:SCALE - at demo.toml kernel k"),
            ("source.py:triton", "expected a @triton.jit function, got module source.py:triton"),
            ("nojit.kernels.pointwise.kernel_generated:vector_ad_fwd_kernel", "did you mean 'vector_add_fwd_kernel'?"),
        ],
    )  # fmt: skip
    def test_what_cannot_be_found(self, place, spelling, message):
        with pytest.raises(ManifestError) as caught:
            describe(replace(place(), spelling=spelling))
        assert message in str(caught.value)

    def test_a_function_that_triton_cannot_read(self, place):
        source = HEADER + "def plain(x):\n    return x\n\n\n@triton.jit\ndef k(x_ptr):\n    plain(x_ptr)\n"
        with pytest.raises(
            ManifestError, match="expected a function that Triton can read, got RuntimeError: Unsupported"
        ):
            describe(place(source, "k"))

    @pytest.mark.parametrize(
        ("source", "message"),
        [
            ("import nowhere_to_be_found\n", "got ModuleNotFoundError: No module named 'nowhere_to_be_found' in "),
            ("import sys\nsys.exit(3)\n", "got SystemExit: 3 - at demo.toml kernel k"),
            ("1 / 0\n", "got ZeroDivisionError: division by zero - at demo.toml kernel k"),
            ("def broken(:\n", "got SyntaxError: "),
        ],
    )  # fmt: skip
    def test_a_file_that_does_not_import(self, place, source, message):
        broken = place(source)
        for _ in range(2):
            with pytest.raises(ManifestError) as caught:
                describe(broken)
            assert message in str(caught.value)
            assert caught.value.__cause__ is not None


def digest(place: Place, source: str, function: str = "scale", **files: str) -> str:
    return describe(place(source, function, **files)).digest


class TestDigest:
    @pytest.mark.parametrize(
        ("old", "new"),
        [
            ("SCALE = ", "# a comment\n\n\nSCALE = "),
            ("@triton.jit\ndef _outer", "\n\n# further down\n@triton.jit\ndef _outer"),
            ("return x - 1", "return x - 2\n\n# longer"),
            ("UNUSED = tl.constexpr(1)", "UNUSED = tl.constexpr(2)"),
        ],
        ids=["lines above", "lines between", "another function", "a constant that nobody reads"],
    )
    def test_stays_when_nothing_that_is_reached_changes(self, place, old, new):
        assert old in SOURCE
        assert digest(place, SOURCE.replace(old, new)) == digest(place, SOURCE)

    @pytest.mark.parametrize(
        ("old", "new"),
        [
            ("mask=lanes < n)\n    tl.store", "mask=lanes <= n)\n    tl.store"),
            ("* SCALE", "* SCALE + 1"),
            ("x + 1.5", "x + 2.5"),
            ("SCALE = tl.constexpr(2)", "SCALE = tl.constexpr(3)"),
            ("SCALE = tl.constexpr(2)", "SCALE = tl.constexpr(2.0)"),
            ("SCALE = tl.constexpr(2)", "SCALE = tl.constexpr(True)"),
            ("WIDTH = tl.constexpr(64)", "WIDTH = tl.constexpr(32)"),
            ("@triton.jit\ndef _inner", "@triton.jit(noinline=True)\ndef _inner"),
        ],
        ids=["body", "helper", "helper's helper", "constant", "type of a constant", "bool", "default", "noinline"],
    )
    def test_changes_with_whatever_is_reached(self, place, old, new):
        assert old in SOURCE
        assert digest(place, SOURCE.replace(old, new)) != digest(place, SOURCE)

    def test_covers_helpers_and_constants_of_other_files(self, place):
        source = SOURCE.replace("return _inner(x)", "return digest_neighbour.twice(x) + digest_neighbour.SIZE")
        source = f"import {{0}} as digest_neighbour\n{source}"
        helper = HEADER + "SIZE = tl.constexpr(4)\nSPARE = 1\n\n\n@triton.jit\ndef twice(x):\n    return x * 2\n"
        edits = {
            "same": helper,
            "moved": "# moved\n" + helper,
            "spare": helper.replace("SPARE = 1", "SPARE = 2"),
            "body": helper.replace("x * 2", "x * 4"),
            "constant": helper.replace("constexpr(4)", "constexpr(8)"),
        }
        # each edit under a name of its own, as a module is imported once per process; the name is then hidden again
        found = {}
        for name, text in edits.items():
            module = f"digest_neighbour_{name}"
            found[name] = digest(place, source.replace("{0}", module), **{module: text})
        assert found["same"] == found["moved"] == found["spare"]
        assert len({found["same"], found["body"], found["constant"]}) == 3

    def test_covers_tables_that_constexpr_functions_look_into(self, place):
        lookup = "TABLE = {64: 2, 'wide': [3, None]}\n\n\n@triton.constexpr_function\ndef looked_up(key):\n    return TABLE[key]\n\n\n"
        source = SOURCE.replace("@triton.jit\ndef _inner", f"{lookup}@triton.jit\ndef _inner")
        source = source.replace("x + 1.5", "x + looked_up(64)")
        first = digest(place, source)
        assert digest(place, source) == first
        for old, new in (("64: 2", "64: 4"), ("64: 2", "64: 2.0"), ("[3, None]", "[4, None]"), ("'wide'", "'narrow'")):
            assert old in source
            assert digest(place, source.replace(old, new)) != first

    def test_covers_what_a_helpers_default_stood_for(self, place):
        source = SOURCE.replace(
            "def _inner(x):\n    return x + 1.5", "def _inner(x, by: tl.constexpr = WIDTH):\n    return x + by"
        )
        assert source != SOURCE
        assert digest(place, source) != digest(
            place, source.replace("WIDTH = tl.constexpr(64)", "WIDTH = tl.constexpr(32)")
        )

    def test_does_not_cover_where_the_file_lies(self, place):
        assert digest(place, SOURCE) == digest(place, SOURCE)

    def test_does_not_depend_on_what_was_asked_before(self, place):
        first = place()
        describe(replace(first, spelling="source.py:_inner"))
        describe(replace(first, spelling="source.py:_outer"))
        assert describe(first).digest == digest(place, SOURCE)


@pytest.fixture
def fresh_environment():
    """Keys remember what a process shares; tests that change it forget before and after."""
    keys._environment.cache_clear()
    yield
    keys._environment.cache_clear()


class TestKey:
    @pytest.fixture
    def key(self, place: Place) -> Callable[[Variant], str]:
        where = place()
        source = describe(where)
        return lambda variant: variant_key(variant, source, where)

    def test_is_a_digest_and_the_same_every_time(self, key, place):
        elsewhere = place()
        assert len(key(variant_of())) == 64
        assert key(variant_of()) == key(variant_of()) == variant_key(variant_of(), describe(elsewhere), elsewhere)

    def test_changes_with_each_input(self, key):
        base = variant_of()
        changed = [
            base,
            variant_of("sm_80"),
            variant_of(hints=[{"x_ptr": 16}]),
            variant_of(hints=[{"x_ptr": 16, "n": 16}]),
            variant_of(hints=[{"n": 1}]),
            variant_of(params={"x_ptr": "*fp16", "out_ptr": "*fp32", "n": "i32"}),
            variant_of(params={"x_ptr": "*fp32", "out_ptr": "*fp32", "n": "i64"}),
            variant_of(params={"x_ptr": "none", "out_ptr": "*fp32", "n": "i32"}),
            *(variant_of(configs=[{"BLOCK": value}]) for value in (256, 1, 1.0, True, "1")),
            variant_of(configs=[{"BLOCK": {"dtype": "fp16"}}]),
            variant_of(configs=[{"BLOCK": {"none": True}}]),
            variant_of(configs=[{"BLOCK": [128]}]),
            variant_of(configs=[{"BLOCK": {"function": "source.py:_inner"}}]),
            variant_of(configs=[{"BLOCK": {"function": "source.py:_outer"}}]),
            # `clc` needs sm_100
            *(
                variant_of("sm_100" if name == "clc" else "sm_90", options={name: other})
                for name, other in OTHER_OPTIONS.items()
                if name in CUDAOptions.__dataclass_fields__
            ),
        ]
        keys = [key(variant) for variant in changed]
        assert len(set(keys)) == len(keys)

    @pytest.mark.parametrize(
        ("arch", "options", "message"),
        [
            ("sm_80", {"num_ctas": 2}, "expected options that Triton takes, got num_ctas > 1 requires NVIDIA SM90+"),
            (
                "sm_90",
                {"sched5reg": True},
                r"expected options of Triton .*, got sched5reg = True - at demo.toml ",
            ),
        ],
    )
    def test_refuses_options_that_this_triton_does_not_take(self, key, monkeypatch, arch, options, message):
        monkeypatch.setitem(OPTIONS, "sched5reg", Option(False, bool, "Of a later Triton."))
        with pytest.raises(ManifestError, match=message):
            key(variant_of(arch, options=options))

    def test_covers_what_is_in_a_library(self, place, fresh_environment):
        variant = variant_of(options={"extern_libs": {"lib": "lib.py"}})
        keys = []
        for text in ("1", "1", "2"):
            where = place(lib=text)
            keys.append(variant_key(variant, describe(where), where))
        assert keys[0] == keys[1] != keys[2]
        with pytest.raises(
            ManifestError, match=r"expected readable files in extern_libs, got .*lib\.py: No such file or directory"
        ):
            variant_key(variant, describe(place()), place())

    def test_does_not_change_with_an_option_that_this_triton_lacks_and_nobody_sets(self, key, monkeypatch):
        before = key(variant_of())
        monkeypatch.setitem(OPTIONS, "sched5reg", Option(False, bool, "Of a later Triton."))
        assert ("sched5reg", False) in variant_of().options
        assert key(variant_of()) == before

    def test_does_not_change_with_what_shapes_no_machine_code(self, key):
        base = variant_of()
        same = [
            replace(base, kernel="other"),
            replace(base, config_number=7),
            replace(base, axes=(("dtype", "fp32"),)),
            variant_of(configs=[{"BLOCK": 128, "requires": "n > 4"}], aligned_only="a reason"),
        ]
        assert {key(variant) for variant in same} == {key(base)}

    def test_changes_with_a_function_that_is_handed_in(self, place):
        variant = variant_of(configs=[{"BLOCK": {"function": "source.py:_outer"}}])
        keys = set()
        for text in (SOURCE, SOURCE.replace("x + 1.5", "x + 2.5"), SOURCE.replace("x - 1", "x - 2")):
            # `scale` reaches `_outer` by itself too: take a kernel that does not
            where = place(text.replace("_outer(x), mask", "x, mask"))
            keys.add(variant_key(variant, describe(where), where))
        assert len(keys) == 2

    def test_covers_functions_in_tuples(self, place):
        variant = variant_of(configs=[{"BLOCK": [{"function": "source.py:_outer"}]}])
        keys = set()
        for text in (SOURCE, SOURCE.replace("x + 1.5", "x + 2.5")):
            where = place(text.replace("_outer(x), mask", "x, mask"))
            keys.add(variant_key(variant, describe(where), where))
        assert len(keys) == 2

    def test_changes_with_tritons_version(self, key, monkeypatch, fresh_environment):
        before = key(variant_of())
        keys._environment.cache_clear()
        monkeypatch.setattr(triton, "__version__", "99.0")
        assert key(variant_of()) != before

    def test_changes_with_the_version_of_ptxas(self, key, monkeypatch, fresh_environment):
        before = key(variant_of())
        keys._environment.cache_clear()
        monkeypatch.setattr(keys, "toolchain", lambda arch: (("ptxas", "99.0"), *toolchain(arch)[1:]))
        assert key(variant_of()) != before

    def test_changes_with_a_switch_that_changes_code(self, key, monkeypatch, fresh_environment):
        before = key(variant_of())
        keys._environment.cache_clear()
        monkeypatch.setenv("DISABLE_LLVM_OPT", "1")
        assert key(variant_of()) != before

    @pytest.mark.parametrize("name", ["HOME", "TRITON_CACHE_DIR", "TRITON_DISABLE_LINE_INFO", "LC_ALL"])
    def test_does_not_change_with_one_that_does_not(self, key, monkeypatch, fresh_environment, name):
        before = key(variant_of())
        keys._environment.cache_clear()
        monkeypatch.setenv(name, "1")
        assert key(variant_of()) == before


OTHER_OPTIONS: dict[str, Any] = {
    "num_warps": 8,
    "num_stages": 2,
    "num_ctas": 2,
    "maxnreg": 64,
    "enable_fp_fusion": False,
    "enable_reflect_ftz": False,
    "default_dot_input_precision": "ieee",
    "launch_pdl": True,
    "launch_cooperative_grid": True,
    "clc": True,
    "sched4reg": True,
    "min_shared_mem": 4096,
    "ptx_version": 85,
    "ptx_options": "-O1",
    # any file that is there
    "extern_libs": {"lib": "source.py"},
    "sanitize_overflow": False,
    "debug": True,
}


def test_every_option_is_turned_above():
    # a toolchain has a test of its own, and so have AMD's options
    assert {*OTHER_OPTIONS, *AMDS_OPTIONS, TOOLCHAIN} == {*OPTIONS}
    assert all(OPTIONS[name].default != value for name, value in OTHER_OPTIONS.items())


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Everything temporary goes here, and must be gone in the end."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert list(folder.iterdir()) == []


@pytest.mark.usefixtures("temporary")
class TestCompile:
    @pytest.mark.parametrize(("arch", "sm", "exact"), [("sm_80", 80, False), ("sm_90", 90, True)])
    def test_tells_what_a_launch_needs(self, place, arch, sm, exact):
        where = place()
        compiled = compile_variant(variant_of(arch), where)
        launch = compiled.launch
        assert launch.symbol == "scale"
        assert launch.layout == (Slot("x_ptr", "*fp32"), Slot("out_ptr", "*fp32"), Slot("n", "i32"), *SCRATCH)
        assert (launch.num_warps, launch.num_ctas, launch.shared_bytes) == (4, 1, 0)
        assert (launch.global_scratch_bytes, launch.profile_scratch_bytes) == (0, 0)
        assert (launch.cooperative, launch.pdl) == (False, False)
        assert compiled.spill_bytes == 0
        assert compiled.compile_ms > 0
        info = read_cubin(compiled.image)
        assert (info.sm, info.arch_specific) == (sm, exact)
        (kernel,) = info.kernels
        assert [size for _, size in kernel.params] == [slot.size_bytes for slot in launch.layout] == [8, 8, 4, 8, 8]
        assert kernel.reqntid == (128, 1, 1)
        assert kernel.registers == compiled.registers > 0

    def test_holds_neither_line_info_nor_paths(self, place):
        where = place()
        compiled = compile_variant(variant_of(), where)
        assert not read_cubin(compiled.image).has_debug
        assert b"folder" not in compiled.image
        assert b"nojit_source" not in compiled.image
        assert b"source.py" not in compiled.image

    def test_gives_the_same_image_from_another_folder(self, place):
        assert compile_variant(variant_of(), place()).image == compile_variant(variant_of(), place()).image

    def test_even_where_a_function_of_the_file_stays_a_function(self, place):
        # its symbol holds the name of its module
        helper = "@triton.jit(noinline=True)\ndef _limit(n):\n    return n * 3 + 1\n\n\n"
        source = SOURCE.replace("@triton.jit\ndef scale", f"{helper}@triton.jit\ndef scale")
        source = source.replace("lanes < n)\n    tl.store", "lanes < _limit(n))\n    tl.store")
        images = {compile_variant(variant_of("sm_80"), place(source)).image for _ in range(2)}
        assert len(images) == 1
        assert b"_limit" in images.pop()

    def test_does_not_use_or_fill_tritons_own_cache(self, place, tmp_path, monkeypatch):
        monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
        compile_variant(variant_of(), place())
        assert not (tmp_path / "triton").exists()

    def test_drops_none_and_ones_from_the_layout(self, place):
        source = HEADER + textwrap.dedent("""
            @triton.jit
            def k(a_ptr, b_ptr, out_ptr, n, stride):
                value = n * stride
                if b_ptr is not None:
                    value += tl.load(b_ptr)
                tl.store(out_ptr, value)
        """)
        params = {"a_ptr": "*fp16", "b_ptr": "*i32?", "out_ptr": "*i32", "n": "i32", "stride": "i64"}
        entry = spec(source="source.py:k", params=params, hints=[{"stride": 1}])
        where = place(source, "k")
        layouts = {}
        for variant in expand_kernel(entry, "sm_80", "here").variants:
            launch = compile_variant(variant, where).launch
            layouts[dict(variant.signature)["b_ptr"], len(variant.hints)] = [slot.source for slot in launch.layout[:-2]]
        assert layouts == {
            ("*i32", 1): ["a_ptr", "b_ptr", "out_ptr", "n"],
            ("*i32", 0): ["a_ptr", "b_ptr", "out_ptr", "n", "stride"],
            ("none", 1): ["a_ptr", "out_ptr", "n"],
            ("none", 0): ["a_ptr", "out_ptr", "n", "stride"],
        }

    def test_compiles_hints_in(self, place):
        where = place()
        plain = compile_variant(variant_of("sm_80"), where)
        hinted = compile_variant(
            variant_of("sm_80", hints=[{"x_ptr": 16, "out_ptr": 16, "n": 16}], configs=[{"BLOCK": 512}]), where
        )
        wide = compile_variant(variant_of("sm_80", configs=[{"BLOCK": 512}]), where)
        assert len({plain.image, hinted.image, wide.image}) == 3

    def test_every_scalar_has_the_size_that_the_layout_says(self, place):
        kinds = ["i1", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "fp16", "bf16", "fp32", "fp64"]
        names = [f"s_{kind}" for kind in kinds]
        source = f"{HEADER}\n\n@triton.jit\ndef k(out_ptr, {', '.join(names)}):\n"
        source += "".join(f"    tl.store(out_ptr + {i}, {name}.to(tl.float32))\n" for i, name in enumerate(names))
        entry = {
            "source": "source.py:k",
            "params": {"out_ptr": "*fp32", **dict(zip(names, kinds, strict=True))},
            "configs": [{}],
        }
        compiled = compile_variant(variant_of(**entry), place(source, "k"))
        (kernel,) = read_cubin(compiled.image).kernels
        assert [size for _, size in kernel.params] == [8, 1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 2, 4, 8, 8, 8]

    @pytest.mark.parametrize("element", ["i1", "i8", "u64", "fp16", "bf16", "fp64", "fp8e4nv", "fp8e5"])
    def test_takes_pointers_to_every_element(self, place, element):
        source = HEADER + "\n\n@triton.jit\ndef k(x_ptr, out_ptr):\n    tl.store(out_ptr, tl.load(x_ptr))\n"
        params = {"x_ptr": f"*{element}", "out_ptr": f"*{element}"}
        compiled = compile_variant(variant_of(source="source.py:k", params=params, configs=[{}]), place(source, "k"))
        assert compiled.launch.layout[:2] == (Slot("x_ptr", f"*{element}"), Slot("out_ptr", f"*{element}"))


KINDS = (
    HEADER
    + """
@triton.jit
def _double(x):
    return x * 2


@triton.jit
def k(out_ptr, V: tl.constexpr):
    {}
"""
)


@pytest.mark.usefixtures("temporary")
class TestConstexprs:
    @pytest.mark.parametrize(
        ("value", "body"),
        [
            (3, "tl.store(out_ptr, V + 1.0)"),
            (2.5, "tl.store(out_ptr, V)"),
            (True, "tl.static_assert(V is True)\n    tl.store(out_ptr, 1.0)"),
            ("gelu", "tl.static_assert(V == 'gelu')\n    tl.store(out_ptr, 1.0)"),
            ({"none": True}, "tl.static_assert(V is None)\n    tl.store(out_ptr, 1.0)"),
            ({"dtype": "fp16"}, "tl.store(out_ptr, tl.full((), 1.3, V).to(tl.float32))"),
            ({"function": "source.py:_double"}, "tl.store(out_ptr, V(tl.load(out_ptr)))"),
            ([1, 2], "tl.store(out_ptr, V[0] + V[1] + 0.5)"),
            ([1, {"dtype": "fp16"}], "tl.store(out_ptr, tl.full((), V[0], V[1]).to(tl.float32))"),
            ([{"function": "source.py:_double"}], "tl.store(out_ptr, V[0](tl.load(out_ptr)))"),
        ],
        ids=[
            "int",
            "float",
            "bool",
            "str",
            "none",
            "dtype",
            "function",
            "tuple",
            "tuple of dtype",
            "tuple of function",
        ],
    )
    def test_of_every_kind(self, place, value, body):
        variant = variant_of(source="source.py:k", params={"out_ptr": "*fp32"}, configs=[{"V": value}])
        compiled = compile_variant(variant, place(KINDS.format(body), "k"))
        assert [slot.source for slot in compiled.launch.layout[:-2]] == ["out_ptr"]

    def test_a_default_of_the_function_is_used(self, place):
        without = variant_of("sm_80", configs=[{}])
        assert without.constexprs == ()
        where = place()
        assert (
            compile_variant(without, where).image
            == compile_variant(variant_of("sm_80", configs=[{"BLOCK": 64}]), where).image
        )

    def test_a_function_that_is_not_there_fails_its_variant(self, place):
        variant = variant_of(
            source="source.py:k", params={"out_ptr": "*fp32"}, configs=[{"V": {"function": "source.py:_duoble"}}]
        )
        where = place(KINDS.format("pass"), "k")
        with pytest.raises(ManifestError, match="got '_duoble'; did you mean '_double'"):
            variant_key(variant, describe(where), where)


@pytest.mark.usefixtures("temporary")
class TestOptions:
    def test_reach_the_launch(self, place):
        options = {"num_warps": 8, "num_ctas": 2, "launch_pdl": True, "launch_cooperative_grid": True}
        launch = compile_variant(variant_of("sm_90", options=options), place()).launch
        assert (launch.num_warps, launch.num_ctas, launch.pdl, launch.cooperative) == (8, 2, True, True)

    def test_what_an_architecture_does_not_have_is_not_asked_of_it(self, place):
        assert not compile_variant(variant_of("sm_80", options={"launch_pdl": True}), place()).launch.pdl

    def test_maxnreg_is_kept_and_what_spills_is_counted(self, place):
        # the whole block is needed twice, 64 values a thread
        source = HEADER + textwrap.dedent("""
            @triton.jit
            def k(x_ptr, out_ptr, BLOCK: tl.constexpr):
                lanes = tl.arange(0, BLOCK)
                x = tl.load(x_ptr + lanes)
                tl.store(out_ptr + lanes, x / tl.sum(x))
        """)
        entry = {"source": "source.py:k", "params": {"x_ptr": "*fp32", "out_ptr": "*fp32"}}
        where = place(source, "k")
        squeezed = compile_variant(
            variant_of("sm_80", **entry, configs=[{"BLOCK": 2048, "num_warps": 1, "maxnreg": 32}]), where
        )
        assert squeezed.registers <= 32
        assert squeezed.spill_bytes > 0
        roomy = compile_variant(variant_of("sm_80", **entry, configs=[{"BLOCK": 128, "num_warps": 1}]), where)
        assert roomy.spill_bytes == 0

    def test_a_library_beside_the_manifest_is_linked(self, place):
        from triton.backends.nvidia import compiler as nvidia

        where = place(SOURCE.replace("x + 1.5", "tl.extra.cuda.libdevice.tgamma(x)"))
        libdevice = Path(nvidia.__file__).parent / "lib/libdevice.10.bc"
        (where.folder / "own.bc").write_bytes(libdevice.read_bytes())
        theirs, own = variant_of(), variant_of(options={"extern_libs": {"libdevice": "own.bc"}})
        assert compile_variant(own, where).image == compile_variant(theirs, where).image
        (where.folder / "own.bc").write_bytes(b"no bitcode")
        with pytest.raises(CompileError):
            compile_variant(own, where)

    def test_a_kernel_that_makes_descriptors_needs_scratch_on_sm_90(self, place):
        source = HEADER + textwrap.dedent("""
            @triton.jit
            def k(x_ptr, out_ptr, rows, cols, BLOCK: tl.constexpr):
                x = tl.make_tensor_descriptor(x_ptr, [rows, cols], [cols, 1], [BLOCK, BLOCK])
                lanes = tl.arange(0, BLOCK)
                tl.store(out_ptr + lanes[:, None] * BLOCK + lanes[None, :], x.load([0, 0]))
        """)
        params = {"x_ptr": "*fp16", "out_ptr": "*fp16", "rows": "i32", "cols": "i32"}
        entry = {"source": "source.py:k", "params": params, "configs": [{"BLOCK": 64}]}
        where = place(source, "k")
        launch = compile_variant(variant_of("sm_90", **entry), where).launch
        assert launch.global_scratch_bytes > 0
        assert launch.global_scratch_align == 128
        assert launch.shared_bytes > 0
        assert compile_variant(variant_of("sm_80", **entry), where).launch.global_scratch_bytes == 0


GLUON = """
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def look(a, pair, out_ptr):
    gl.static_assert(a.layout == gl.NVMMASharedLayout.get_default_for(a.block_shape, a.dtype))
    memory = gl.allocate_shared_memory(a.dtype, a.block_shape, a.layout)
    gl.store(out_ptr, a.shape[0] + pair[0].shape[0] + pair[1])
"""


@pytest.mark.usefixtures("temporary")
class TestTarget:
    """What kernels are told that ask Triton what they run on."""

    SOURCE = HEADER + textwrap.dedent("""
        @triton.jit
        def k(out_ptr):
            tl.static_assert(tl.target_info.is_cuda())
            tl.static_assert(tl.target_info.cuda_capability_geq(8, 6))
            tl.static_assert(not tl.target_info.cuda_capability_geq(9, 0))
            tl.store(out_ptr, 1.0)
    """)

    @pytest.mark.parametrize("machine", [None, GPUTarget("cuda", 75, 32), GPUTarget("hip", "gfx942", 64)])
    def test_is_what_is_compiled_for_whatever_is_in_this_machine(self, place, machine, monkeypatch):
        class Machine:
            def get_current_target(self):
                return machine

        before = Machine() if machine else None
        monkeypatch.setattr(active_driver, "_active", before)
        where = place(self.SOURCE, "k")
        entry = {"source": "source.py:k", "params": {"out_ptr": "*fp32"}}
        assert compile_variant(variant_of("sm_86", **entry, configs=[{}]), where).image
        with pytest.raises(CompileError):
            compile_variant(variant_of("sm_90", **entry, configs=[{}]), where)
        assert vars(active_driver)["_active"] is before


class TestGluon:
    @pytest.mark.parametrize("element", ["fp16", "bf16", "fp32", "i8", "u16", "i64", "fp8e5"])
    def test_descriptors_have_the_default_layout_of_their_block(self, place, element):
        kind = f"tensordesc<{element}[64,32]>"
        params = {"a": kind, "pair": "(tensordesc<bf16[8,128]>, i32)", "out_ptr": "*i32"}
        entry = {"source": "source.py:look", "params": params, "configs": [{}]}
        launch = compile_variant(variant_of(**entry), place(GLUON, "look")).launch
        assert [slot.source for slot in launch.layout if slot.type == "tensormap"] == ["a.map", "pair.0.map"]
        assert [each.block for each in launch.tensor_maps] == [(64, 16 if element == "i64" else 32), (8, 64)]

    @pytest.mark.parametrize(
        ("words", "layout"),
        [
            ("", "gl.NVMMASharedLayout.get_default_for(a.block_shape, a.dtype)"),
            ("swizzle_byte_width=0", "gl.NVMMASharedLayout(0, 16, 2)"),
            ("transposed=True", "gl.NVMMASharedLayout(128, 16, 2, transposed=True)"),
            ("transposed=True,swizzle_byte_width=32", "gl.NVMMASharedLayout(32, 16, 2, transposed=True)"),
        ],
    )
    def test_descriptors_have_the_layout_that_their_type_spells(self, place, words, layout):
        text = GLUON.replace("gl.NVMMASharedLayout.get_default_for(a.block_shape, a.dtype)", layout)
        pair = f"(tensordesc<fp16[64,64],NVMMASharedLayout({words})>, i32)"
        params = {"a": f"tensordesc<fp16[64,64],NVMMASharedLayout({words})>", "pair": pair, "out_ptr": "*i32"}
        where = place(text, "look")
        variant = variant_of(source="source.py:look", params=params, configs=[{}])
        assert compile_variant(fit_variant(variant, describe(where), "here"), where).launch.num_warps == 4

    def test_layouts_are_gluons(self, place):
        params = {"x_ptr": "*fp32", "a": "tensordesc<fp16[64,64],NVMMASharedLayout()>"}
        variant = variant_of(source="source.py:k", params=params, configs=[{}])
        with pytest.raises(ManifestError) as caught:
            fit_variant(
                variant, describe(place("import triton\n@triton.jit\ndef k(x_ptr, a):\n    pass\n", "k")), "here"
            )
        assert str(caught.value) == (
            "expected no layout for 'a': k is not written in Gluon, so Triton chooses the layout - at here.params"
        )

    def test_its_source_is_in_the_key(self, place):
        as_gluon = place(GLUON.replace("static_assert(a.layout ==", "static_assert(True or a.layout =="), "look")
        assert describe(as_gluon).digest != describe(place(GLUON, "look")).digest


@pytest.mark.usefixtures("temporary")
class TestFailures:
    def fail(self, place: Place, body: str, **fields: Any) -> CompileError:
        entry: dict[str, Any] = {"source": "source.py:k", "params": {"out_ptr": "*fp32"}, "configs": [{"V": 1}]}
        with pytest.raises(CompileError) as caught:
            compile_variant(variant_of(**entry | fields), place(KINDS.format(body), "k"))
        return caught.value

    def test_carry_tritons_words(self, place):
        error = self.fail(place, "tl.static_assert(V == 2, 'V must be 2, friend')")
        assert str(error).startswith("expected to compile, got CompileTimeAssertionFailure: V must be 2, friend - at ")
        assert str(error).endswith(", demo.toml kernel k: k sm_90 V=1 num_warps=4 num_stages=3 num_ctas=1")
        assert "V must be 2, friend" in str(error)
        assert "V must be 2, friend" in error.log
        assert len(str(error).splitlines()) == 1

    def test_carry_the_words_of_ptxas(self, place):
        error = self.fail(place, "tl.store(out_ptr, 1.0)", options={"ptx_options": "--no-such-option"})
        assert str(error).startswith("expected to compile, got PTXASError: ")
        assert "no-such-option" in error.log

    def test_name_a_wrong_name_in_the_kernel(self, place):
        error = self.fail(place, "tl.store(out_ptr, nowhere_defined)")
        assert "got CompilationError: NameError('nowhere_defined is not defined') - at " in str(error)

    def test_name_what_is_wrong_in_a_helper(self, place):
        helper = "@triton.jit\ndef helper(x):\n    return x + nowhere_defined\n\n"
        text = KINDS.format("tl.store(out_ptr, helper(1))").replace(
            "@triton.jit\ndef k(", f"{helper}@triton.jit\ndef k("
        )
        with pytest.raises(CompileError) as caught:
            compile_variant(
                variant_of(source="source.py:k", params={"out_ptr": "*fp32"}, configs=[{"V": 1}]), place(text, "k")
            )
        assert "NameError('nowhere_defined is not defined')" in str(caught.value)
        assert "return x + nowhere_defined" in caught.value.log

    @pytest.mark.parametrize(
        "text",
        [
            "# a comment\n\n@triton.heuristics({})\n@triton.jit\ndef k(out_ptr, V: tl.constexpr):\n    tl.store(out_ptr, <>nowhere)\n",
            "@triton.jit\ndef k(\n    out_ptr,\n    V: tl.constexpr,\n):\n    # é: a column counts characters\n    'é'; tl.store(out_ptr, <>nowhere)\n",
            "def make():\n    if True:\n        @triton.jit\n        def k(out_ptr, V: tl.constexpr):\n            x = 1\n            tl.store(out_ptr, x + <>nowhere)\n        return k\n\n\nk = make()\n",
            "@triton.jit\ndef helper(x):\n    return x + <>nowhere\n\n\n@triton.jit\ndef k(out_ptr, V: tl.constexpr):\n    tl.store(out_ptr, helper(1))\n",
            "@triton.jit\ndef k(out_ptr, V: tl.constexpr):\n    <>tl.static_assert(V == 2, 'no')\n",
            "@triton.jit\ndef k(out_ptr, V: tl.constexpr):\n    x = tl.arange(0, 4)\n    y = <>tl.sum(x, axis=7)\n    tl.store(out_ptr, y)\n",
            "@triton.jit\ndef k(out_ptr, V: tl.constexpr):\n    while V:\n        <>yield V\n",
        ],
        ids=["decorated", "characters", "nested", "helper", "assertion", "library", "construct"],
    )
    def test_name_the_line_and_the_column_of_the_source(self, place, text):
        text = "import triton\nimport triton.language as tl\n\n" + text
        before, _, after = text.partition("<>")
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        where = place(before + after, "k")
        with pytest.raises(CompileError) as caught:
            compile_variant(variant_of(source="source.py:k", params={"out_ptr": "*fp32"}, configs=[{"V": 1}]), where)
        assert f" - at {where.folder / 'source.py'}:{line}:{column}, demo.toml kernel k" in str(caught.value)
        shown = (before + after).splitlines()[line - 1]
        assert f"source.py:{line}:{column}\n{shown}\n{' ' * (column - 1)}^" in caught.value.log
        assert "nowhere" not in text or "NameError('nowhere is not defined')" in str(caught.value)

    def test_name_the_file_of_a_helper(self, place):
        text = "import triton\nfrom other_helper import helper\n@triton.jit\ndef k(out_ptr):\n    helper(out_ptr)\n"
        where = place("import triton\n", "k")
        other = where.folder / "other_helper.py"
        other.write_text("import triton\n\n\n@triton.jit\ndef helper(x):\n    nowhere(x)\n", encoding="utf-8")
        (where.folder / "source.py").write_text(text, encoding="utf-8")
        entry: dict[str, Any] = {"source": "source.py:k", "params": {"out_ptr": "*fp32"}, "configs": [{}]}
        variant = expand_kernel(spec(**entry), "sm_90", "here").variants[0]
        with pytest.raises(CompileError) as caught:
            compile_variant(variant, where)
        assert f" - at {other}:6:5, " in str(caught.value)
        assert f"{where.folder / 'source.py'}:5:5\n    helper(out_ptr)\n    ^" in caught.value.log

    def test_an_image_that_differs_from_its_launch_facts_is_refused(self, place, monkeypatch):
        layout_of = compiler.layout_of

        def wrong(*passed: Any, **how: Any) -> tuple[Slot, ...]:
            first, *rest = layout_of(*passed, **how)
            return (replace(first, type="i32"), *rest)

        monkeypatch.setattr(compiler, "layout_of", wrong)
        with pytest.raises(
            CompileError, match=r"expected an image that agrees with its launch facts, got .*4 bytes"
        ) as caught:
            compile_variant(variant_of(), place())
        assert "demo.toml kernel k: k sm_90" in str(caught.value)


class TestToolchain:
    @pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
    def test_names_both_tools_by_version_and_content_sorted(self, arch):
        tools = dict(toolchain(arch))
        assert [*tools] == ["ptxas", "ptxas.digest", "triton", "triton.digest"]
        assert tools["triton"] == triton.__version__
        assert tools["ptxas"].split(".")[0].isdigit()

    @pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
    def test_the_driver_is_of_the_major_version_of_ptxas(self, arch):
        assert min_driver(arch) == 1000 * int(dict(toolchain(arch))["ptxas"].split(".")[0])

    def test_the_image_says_which_toolkit_it_is_from(self, place):
        for arch in ("sm_80", "sm_90"):
            toolkit = read_cubin(compile_variant(variant_of(arch), place()).image).toolkit
            assert toolkit is not None
            assert f"{toolkit[0]}.{toolkit[1]}" == dict(toolchain(arch))["ptxas"]


def test_both_facts_and_image_survive_the_worker_and_the_cache(place):
    from nojit.aot.variants.variant import decode_compiled, encode_compiled

    compiled = compile_variant(variant_of("sm_80"), place())
    assert isinstance(compiled, CompiledVariant)
    assert decode_compiled(encode_compiled(compiled, "sm_80"), "sm_80") == compiled


class TestLineInfo:
    def test_lines_move_the_keys_of_images_that_name_them(self, place):
        plain = variant_of()
        named = replace(plain, line_info=True)

        def keys(source: str) -> tuple[str, str]:
            where = place(source)
            return tuple(variant_key(variant, describe(where), where) for variant in (plain, named))

        first = keys(SOURCE)
        assert first[0] != first[1]
        # a helper moves, and a file: the machine code is what it was
        for source in (SOURCE.replace("def _unrelated(x):\n", "def _unrelated(x):\n\n"), SOURCE):
            moved = keys(source)
            assert moved[0] == first[0]
            assert moved[1] != first[1]

    def test_one_source_has_one_key(self, place):
        where, named = place(), replace(variant_of(), line_info=True)
        assert variant_key(named, describe(where), where) == variant_key(named, describe(where), where)

    def test_a_decorator_is_a_line(self, place):
        where = place()
        named = replace(variant_of(), line_info=True)
        before = variant_key(named, describe(where), where)
        path = where.folder / "source.py"
        path.write_text(SOURCE.replace("@triton.jit\ndef scale", "@triton.jit\n\ndef scale"), encoding="utf-8")
        source_import._files.clear()
        functions.named.cache_clear()
        functions.find.cache_clear()
        assert variant_key(named, describe(where), where) != before

    def test_what_is_compiled_says_its_lines(self, place):
        where, plain = place(), variant_of()
        without = compile_variant(plain, where)
        compiled = compile_variant(replace(plain, line_info=True), where)
        assert b"source.py" in compiled.image
        assert b".debug_line" in compiled.image
        assert b"source.py" not in without.image
        assert compiled.launch == without.launch
        assert compile_variant(plain, where).image == without.image


def test_values_that_only_look_like_functions(place):
    assert functions.to_triton("source.py:_inner", place()) == "source.py:_inner"
    assert functions.to_triton(FunctionRef("source.py:_inner"), place()).__name__ == "_inner"
    assert functions.to_triton(DType("fp16"), place()).name == "fp16"
