"""What a kernel function says of itself, by annotations and decorators, held against what Triton's own binder makes of a call."""

from __future__ import annotations

import random
import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from nojit.aot.compile.triton import compiler
from nojit.aot.plan.plan import PlannedKernel
from nojit.aot.plan.planner import make_plans
from nojit.aot.variants.variant import Variant
from nojit.runtime.bundle.cubin import read_cubin
from nojit.runtime.errors import ManifestError

pytestmark = pytest.mark.triton

HEADER = 'schema = 1\n[bundle]\nname = "demo"\nversion = "1.0"\narchs = ["sm_90"]\n'
IMPORTS = "import triton\nimport triton.language as tl\n\n\n"


@dataclass(frozen=True)
class Tensor:
    """All that Triton reads of a tensor."""

    dtype: str
    address: int

    def data_ptr(self) -> int:
        return self.address


def bound_by_triton(
    function: Any, arguments: dict[str, Any], options: dict[str, Any], rest: tuple[Any, ...] = ()
) -> tuple[Any, ...]:
    """Return options, signature, constexprs and attributes, as a call of the JIT has them when it compiles."""
    from triton.compiler import make_backend
    from triton.runtime.jit import create_function_from_signature

    backend = make_backend(compiler.gpu_target("sm_90"))
    # as `JITFunction.run` does
    options = {"enable_fp_fusion": True, **options, "debug": options.get("debug", function.debug) or False}
    binder = create_function_from_signature(function.signature, function.params, backend)
    first = [*arguments.values(), *rest] if rest else []
    args, specialization, others = binder(*first, **({} if rest else arguments), **options)
    bound: tuple[Any, ...] = function._pack_args(backend, {**arguments, **options}, args, specialization, others)
    return bound


@pytest.fixture
def plan(tmp_path: Path) -> Callable[..., PlannedKernel]:
    """Plan one kernel: the source of its module, the rest of its entry as TOML."""
    numbers = iter(range(1000))

    def make(source: str, entry: str = "", *, first: str = "") -> PlannedKernel:
        folder = tmp_path / f"plan{next(numbers)}"
        folder.mkdir()
        (folder / "source.py").write_text(first + IMPORTS + textwrap.dedent(source), encoding="utf-8")
        text = f'{HEADER}[[kernel]]\nname = "k"\nsource = "source.py:k"\n{entry}'
        (folder / "demo.toml").write_text(text, encoding="utf-8")
        (planned,) = make_plans([folder / "demo.toml"], [], "full", compiler)[0].kernels
        return planned

    return make


def ttir(source: Any) -> str:
    """Return what Triton makes of a function, before any lowering."""
    import triton

    options = {"enable_fp_fusion": True}
    text: str = triton.compile(source, target=compiler.gpu_target("sm_90"), options=options).asm["ttir"]
    return text


def ttir_of(kernel: PlannedKernel, variant: Variant) -> str:
    return ttir(compiler.ast_source(variant, kernel.place))


@pytest.fixture(autouse=True)
def _cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))


# -- every signature, as Triton's binder has it ----------------------------------------------------------------------

INT_TYPES = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
SPELLED = {name: name.replace("uint", "u").replace("int", "i") for name in INT_TYPES}
FLOAT_TYPES = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64"}
DTYPES = (("torch.float16", "fp16"), ("torch.float32", "fp32"), ("torch.int64", "i64"), ("torch.bool", "u1"))


@dataclass(frozen=True)
class Case:
    """A param with an argument, and the type and hint that a manifest has for both."""

    annotation: str
    argument: Any
    kind: str
    hint: int | None = None
    constexpr: bool = False


def case_of(rng: random.Random) -> Case:  # noqa: PLR0911 - one for each shape
    """Draw a param, not yet with what the decorator says of it."""
    number = rng.choice((0, 1, 5, 16, 48, 112))
    shape = rng.randrange(8)
    if shape == 0:
        name = rng.choice(INT_TYPES)
        spelling = rng.choice((f"tl.{name}", f'"{SPELLED[name]}"', f'"tl.{name}"'))
        return Case(spelling, number, SPELLED[name], 16 if number % 16 == 0 else None)
    if shape == 1:
        name = rng.choice([*FLOAT_TYPES])
        return Case(rng.choice((f"tl.{name}", f'"{FLOAT_TYPES[name]}"')), rng.random(), FLOAT_TYPES[name])
    if shape == 2:
        return Case(*rng.choice((("tl.int1", True, "i1"), ("", False, "i1"), ("bool", True, "u1"))))
    if shape == 3:
        return Case("", number, "i32", 1 if number == 1 else 16 if number % 16 == 0 else None)
    if shape == 4:
        return Case("", 1.5, "fp32")
    if shape == 5:
        return Case("tl.constexpr", rng.choice((1, 16, True, "word", 1.5)), "", constexpr=True)
    dtype, element = rng.choice(DTYPES)
    address = rng.choice((4096, 4100))
    hint = 16 if address == 4096 else None
    if shape == 6:
        annotation, star = rng.choice((("", "*"), ("tl.const", "*k")))
        return Case(annotation, Tensor(dtype, address), star + element, hint)
    annotation, kind = rng.choice((('"*fp32"', "*fp32"), ("tl.pointer_type(tl.int8)", "*i8"), ('"*ki32"', "*ki32")))
    return Case(annotation, Tensor(dtype, address), kind, hint)


def toml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value).replace("'", '"')


@dataclass(frozen=True)
class Drawn:
    """A function, and a call of it with its entry."""

    source: str
    entry: str
    cases: dict[str, Case]
    hints: dict[str, int]
    options: dict[str, Any]


def draw(rng: random.Random, name: str) -> Drawn:
    cases = {f"p{place}": case_of(rng) for place in range(rng.randint(1, 7))}
    never = [param for param in cases if rng.random() < 0.2]
    unaligned = [param for param in cases if rng.random() < 0.2]
    debug = rng.choice((None, True, False))
    hints = {
        param: case.hint
        for param, case in cases.items()
        if case.hint and param not in never and not (case.hint == 16 and param in unaligned)
    }
    params = ", ".join(f"{param}: {case.annotation}" if case.annotation else param for param, case in cases.items())
    said = f"do_not_specialize={never}, do_not_specialize_on_alignment={unaligned}, debug={debug}"
    lines = [f'\n[[kernel]]\nname = "{name}"\nsource = "source.py:{name}"\n\n[kernel.params]']
    lines += [f'{param} = "{case.kind}"' for param, case in cases.items() if not case.constexpr]
    lines += ["\n[kernel.matrix]"]
    lines += [f"{param} = [{toml(case.argument)}]" for param, case in cases.items() if case.constexpr]
    lines += ["\n[[kernel.hints]]", *(f"{param} = {hint}" for param, hint in hints.items())] if hints else []
    return Drawn(
        f"@triton.jit({said})\ndef {name}({params}):\n    pass\n\n\n", "\n".join(lines) + "\n", cases, hints, {}
    )


def test_a_variant_is_what_tritons_binder_makes_of_a_call(tmp_path):
    rng = random.Random(37)
    drawn = {f"k{number}": draw(rng, f"k{number}") for number in range(150)}
    (tmp_path / "source.py").write_text(IMPORTS + "".join(each.source for each in drawn.values()), encoding="utf-8")
    manifest = tmp_path / "demo.toml"
    manifest.write_text(HEADER + "".join(each.entry for each in drawn.values()), encoding="utf-8")
    (plan,) = make_plans([manifest], [], "full", compiler)
    assert len(plan.kernels) == len(drawn)
    for kernel in plan.kernels:
        one = drawn[kernel.spec.name]
        (variant,) = (each for each in kernel.variants if dict(each.hints) == one.hints)
        ours = compiler.ast_source(variant, kernel.place)
        arguments = {name: case.argument for name, case in one.cases.items()}
        options, signature, constexprs, attrs = bound_by_triton(ours.fn, arguments, {})
        # two spellings of a bool
        spelled = {name: re.sub(r"^(\*k?)?i1$", r"\1u1", kind) for name, kind in ours.signature.items()}
        assert spelled == signature, one
        assert ours.constants == constexprs, one
        assert ours.attrs == {place: told for place, told in attrs.items() if told}, one
        assert dict(variant.options)["debug"] == options.debug, one


# -- annotations -----------------------------------------------------------------------------------------------------

WIDE = """
    @triton.jit
    def k(out_ptr, base: tl.int64, scale: tl.float16, flag: tl.int1):
        value = base * 65536 * (tl.program_id(0) + 1)
        tl.store(out_ptr, value + scale.to(tl.int64) + flag.to(tl.int64))
"""
WIDE_PARAMS = '[kernel.params]\nout_ptr = "*i64"\nbase = "i64"\nscale = "fp16"\nflag = "i1"\n'


@pytest.mark.parametrize("value", [1, 5])
def test_arithmetic_is_as_wide_as_a_param_is_annotated(plan, value):
    kernel = plan(WIDE, WIDE_PARAMS)
    (variant,) = kernel.variants
    arguments = {"out_ptr": Tensor("torch.int64", 4100), "base": value, "scale": 1.5, "flag": True}
    ours = compiler.ast_source(variant, kernel.place)
    _, *facts = bound_by_triton(ours.fn, arguments, {})
    assert ttir(ours) == ttir(compiler.ASTSource(ours.fn, *facts))
    # base * 65536, and its product with the program's number
    products = [line for line in ttir(ours).splitlines() if "arith.muli" in line]
    assert ["i64" in line for line in products] == [True, True]


@pytest.mark.parametrize(
    ("param", "wrong", "right"),
    [("base", "i32", "i64"), ("scale", "fp32", "fp16"), ("flag", "i32", "u1"), ("base", "u64", "i64")],
)
def test_a_type_that_contradicts_an_annotation_is_refused_with_both(plan, param, wrong, right):
    lines = [f'{param} = "{wrong}"' if line.startswith(param) else line for line in WIDE_PARAMS.splitlines()]
    with pytest.raises(ManifestError, match=f"expected '{right}' for '{param}', as k annotates it, got '{wrong}'"):
        plan(WIDE, "\n".join(lines))


def test_an_axis_that_types_an_annotated_param_is_refused(plan):
    params = WIDE_PARAMS.replace('base = "i64"', 'base = "{index}"') + '[kernel.matrix]\nindex = ["i64", "i32"]\n'
    with pytest.raises(ManifestError, match="expected 'i64' for 'base', as k annotates it, got 'i32'"):
        plan(WIDE, params)


def test_an_annotated_param_takes_no_hint_that_it_is_1(plan):
    with pytest.raises(ManifestError, match="expected no hint 1 for 'base': k annotates 'base' as 'i64'"):
        plan(WIDE, f"{WIDE_PARAMS}[[kernel.hints]]\nbase = 1\n")


def test_an_annotated_int_may_be_hinted_as_divisible_by_16(plan):
    kernel = plan(WIDE, f"{WIDE_PARAMS}[[kernel.hints]]\nbase = 16\n")
    assert [variant.hints for variant in kernel.variants] == [(("base", 16),), ()]
    assert "base" in ttir_of(kernel, kernel.variants[0])


def test_what_requires_implies_is_compiled_in_only_where_triton_would(plan):
    entry = '[[kernel.configs]]\nrequires = "base == 1 and aligned(out_ptr, 16)"\nnum_warps = 8\n[[kernel.configs]]\n'
    kernel = plan(WIDE, WIDE_PARAMS + entry)
    assert {variant.hints for variant in kernel.variants} == {(("out_ptr", 16),), ()}
    assert all("%base: i64" in ttir_of(kernel, variant) for variant in kernel.variants)
    source = '@triton.jit(do_not_specialize=["base"])\ndef k(out_ptr, base, scale, flag): pass\n'
    assert plan(source, WIDE_PARAMS + entry).variants[0].hints == (("out_ptr", 16),)


@pytest.mark.parametrize("kind", ["*fp32?", "none"])
def test_an_annotated_pointer_cannot_be_none(plan, kind):
    with pytest.raises(ManifestError, match=r"expected '\*fp32' for 'x', .*never compiles None"):
        plan('@triton.jit\ndef k(x: "*fp32"): pass\n', f'[kernel.params]\nx = "{kind}"\n')


@pytest.mark.parametrize("kind", ["*fp32", "(*kfp32, (*fp32, i32))"])
def test_a_pointer_to_constants_is_spelled_as_one(plan, kind):
    with pytest.raises(ManifestError, match=r"expected '\*kfp32' for 'x', which k annotates as a pointer to constants"):
        plan("@triton.jit\ndef k(x: tl.const): pass\n", f'[kernel.params]\nx = "{kind}"\n')


def test_annotations_that_are_text_count_too(plan):
    with pytest.raises(ManifestError, match="expected 'i64' for 'base'"):
        plan(WIDE, WIDE_PARAMS.replace("i64", "i32"), first="from __future__ import annotations\n")


# -- decorators ------------------------------------------------------------------------------------------------------

CHECKED = """
    @triton.jit(debug={debug})
    def k(x_ptr, n, BLOCK: tl.constexpr):
        _check(n)
        tl.store(x_ptr + tl.arange(0, BLOCK), n)


    @triton.jit
    def _check(n):
        tl.device_assert(n > 0, "n must be positive")
"""
CHECKED_PARAMS = '[kernel.params]\nx_ptr = "*i32"\nn = "i32"\n[[kernel.configs]]\nBLOCK = 128\n'


def asserts(kernel: PlannedKernel) -> Iterator[bool]:
    for variant in kernel.variants:
        image = compiler.compile_variant(variant, kernel.place).image
        read_cubin(image)
        yield b"__assertfail" in image


@pytest.mark.parametrize(
    ("debug", "options", "kept"),
    [
        ("True", "", True),
        ("None", "", False),
        ("False", "", False),
        ("True", "debug = false\n", False),
        ("None", "debug = true\n", True),
        ("True", "[kernel.options]\ndebug = false\n", False),
    ],
)
def test_debug_of_the_decorator_holds_unless_the_manifest_sets_it(plan, debug, options, kept):
    kernel = plan(CHECKED.format(debug=debug), CHECKED_PARAMS + options)
    assert [*asserts(kernel)] == [kept]
    (variant,) = kernel.variants
    assert dict(variant.options)["debug"] is kept
    told = dict(variant.config.options)
    assert told.get("debug", False) is kept
    assert ("debug=True" in variant.label()) is kept


def test_debug_of_the_decorator_is_part_of_the_key(plan):
    keys = set()
    for debug in ("True", "None"):
        kernel = plan(CHECKED.format(debug=debug), CHECKED_PARAMS)
        keys.add(compiler.variant_key(kernel.variants[0], kernel.source, kernel.place))
    assert len(keys) == 2


NAMED = """
    def name_of(variant):
        return f"{prefix}_{{variant.constants['BLOCK']}}_{{variant.signature['x_ptr'].strip('*')}}"


    @triton.jit(repr=name_of)
    def k(x_ptr, BLOCK: tl.constexpr):
        tl.store(x_ptr + tl.arange(0, BLOCK), 0)
"""


def test_repr_of_the_decorator_names_the_image_and_is_part_of_the_key(plan):
    keys = set()
    for prefix in ("first", "second"):
        kernel = plan(NAMED.format(prefix=prefix), '[kernel.params]\nx_ptr = "*i32"\n[[kernel.configs]]\nBLOCK = 128\n')
        (variant,) = kernel.variants
        assert compiler.compile_variant(variant, kernel.place).launch.symbol == f"{prefix}_128_i32"
        keys.add(compiler.variant_key(variant, kernel.source, kernel.place))
    assert len(keys) == 2


def test_a_repr_that_fails_is_a_mistake_of_the_kernel(plan):
    kernel = plan(
        NAMED.format(prefix="first").replace("'BLOCK'", "'SIZE'"),
        '[kernel.params]\nx_ptr = "*i32"\n[[kernel.configs]]\nBLOCK = 128\n',
    )
    with pytest.raises(ManifestError, match="expected `repr` of k's decorator to name the variant, got KeyError"):
        compiler.variant_key(kernel.variants[0], kernel.source, kernel.place)


ENUMS = """
    import enum


    class Activation(str, enum.Enum):
        SILU = "silu"


    class Size(enum.IntEnum):
        SMALL = 128


    @triton.jit
    def k(x_ptr, ACTIVATION: tl.constexpr = Activation.SILU, BLOCK: tl.constexpr = Size.SMALL):
        if ACTIVATION == "silu":
            tl.store(x_ptr + tl.arange(0, BLOCK), 1)
"""


def test_a_member_of_an_enum_as_a_default_is_what_it_is_worth(plan):
    kernel = plan(ENUMS, '[kernel.params]\nx_ptr = "*i32"\n[kernel.matrix]\nACTIVATION = ["silu", "relu"]\n')
    defaults = [param.default for param in kernel.source.params[1:]]
    assert [(type(default), default) for default in defaults] == [(str, "silu"), (int, 128)]
    assert ["tt.store" in ttir_of(kernel, variant) for variant in kernel.variants] == [True, False]
    (variant,) = plan(ENUMS, '[kernel.params]\nx_ptr = "*i32"\n').variants
    assert "tt.store" in ttir_of(kernel, variant)


@pytest.mark.parametrize(
    ("spelling", "name"),
    [("i32", "int32"), ("int32", "int32"), ("u8", "uint8"), ("bfloat16", "bf16"), ("torch.float8_e5m2", "fp8e5"), ("bool", "int1")],
)  # fmt: skip
def test_a_dtype_as_a_constexpr_may_be_spelled_as_a_framework_does(plan, spelling, name):
    source = "@triton.jit\ndef k(x_ptr, D: tl.constexpr): tl.store(x_ptr, tl.load(x_ptr).to(D).to(tl.float32))\n"
    kernel = plan(source, f'[kernel.params]\nx_ptr = "*fp32"\n[kernel.matrix]\nD = [{{ dtype = "{spelling}" }}]\n')
    (variant,) = kernel.variants
    assert compiler.ast_source(variant, kernel.place).constants[1,].name == name
    with pytest.raises(ManifestError, match="expected a Triton dtype, such as 'fp16', got 'float8_e8m0fnu'"):
        plan(source, '[kernel.params]\nx_ptr = "*fp32"\n[kernel.matrix]\nD = [{ dtype = "float8_e8m0fnu" }]\n')


GIVEN = """
    @triton.jit
    def double(x):
        return 2 * x


    @triton.jit
    def k(out_ptr, how, *rest):
        tl.store(out_ptr, how[0](how[1]) + how[2][0] + rest[0])
"""


def test_constants_in_tuples_and_rest_arguments_are_what_tritons_binder_makes_of_them(plan):
    import triton.language as tl

    params = '[kernel.params]\nout_ptr = "*i32"\nhow = "(=function:source.py:double, i32, (=3, none))"\nrest = "(i32, =1.5)"\n'
    kernel = plan(GIVEN, f'{params}[[kernel.hints]]\n"rest.0" = 1\n')
    variant = next(each for each in kernel.variants if each.hints)
    ours = compiler.ast_source(variant, kernel.place)
    try:
        how = (ours.fn.fn.__globals__["double"], 5, (tl.constexpr(3), None))
        _, signature, constexprs, _ = bound_by_triton(
            ours.fn, {"out_ptr": Tensor("torch.int32", 4100), "how": how}, {}, rest=(1, tl.constexpr(1.5))
        )
    except TypeError:
        pytest.skip("this Triton takes no *args")
    assert ours.signature == signature
    unwrapped = {place: getattr(value, "value", value) for place, value in constexprs.items()}
    assert ours.constants == unwrapped


@pytest.mark.parametrize(
    ("table", "place"),
    [
        ("[[kernel.hints]]\nbase = 1", r"12:1 \$\.kernel\[0\]\.hints\[0\]\.base"),
        (
            "[[kernel.partial_hints]]\nhints = { out = 16, base = 1 }",
            r"12:\d+ \$\.kernel\[0\]\.partial_hints\[0\]\.hints\.base",
        ),
        ("[[kernel.point]]\nhints = { base = 1 }", r"12:\d+ \$\.kernel\[0\]\.point\[0\]\.hints\.base"),
    ],
)
def test_a_hint_that_the_function_forbids_is_told_where_it_stands(
    plan: Callable[..., PlannedKernel], table: str, place: str
) -> None:
    source = "@triton.jit\ndef k(out, base: tl.int64):\n    tl.store(out, base)\n"
    entry = f'grid = ["1"]\nparams = {{ out = "*i64", base = "i64" }}\n{table}\n'
    with pytest.raises(ManifestError, match=f"expected no hint 1 for 'base'.* - at .*demo.toml:{place}$"):
        plan(source, entry)
