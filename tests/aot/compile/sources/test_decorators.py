"""Decorators that act when Triton launches: honoured, refused by name, or ignored because the manifest says so."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from nojit.aot.compile.triton import compiler
from nojit.aot.plan.plan import PlannedKernel
from nojit.aot.plan.planner import make_plans
from nojit.runtime.errors import ManifestError

pytestmark = pytest.mark.triton

HEADER = 'schema = 1\n[bundle]\nname = "demo"\nversion = "1.0"\narchs = ["sm_90"]\n'
IMPORTS = (
    "import triton\nimport triton.language as tl\nfrom triton.tools.tensor_descriptor import TensorDescriptor\n\n\n"
)
FUNCTION = """
@triton.jit
def k(out_ptr, n, BLOCK: tl.constexpr):
    tl.store(out_ptr + tl.arange(0, BLOCK), n)
"""
ENTRY = '[kernel.params]\nout_ptr = "*i32"\nn = "i32"\n[[kernel.configs]]\nBLOCK = 128\n'

Planner = Callable[..., PlannedKernel]


@pytest.fixture
def plan(tmp_path: Path) -> Planner:
    """Plan one kernel: its module's source, keys of its entry, and the tables that follow."""
    numbers = iter(range(1000))

    def make(source: str, tables: str = ENTRY, keys: str = "") -> PlannedKernel:
        folder = tmp_path / f"plan{next(numbers)}"
        folder.mkdir()
        (folder / "source.py").write_text(IMPORTS + source, encoding="utf-8")
        text = f'{HEADER}[[kernel]]\nname = "k"\nsource = "source.py:k"\n{keys}\n{textwrap.dedent(tables)}'
        (folder / "demo.toml").write_text(text, encoding="utf-8")
        (planned,) = make_plans([folder / "demo.toml"], [], "full", compiler)[0].kernels
        return planned

    return make


def tuned(arguments: str = "", config: str = "", function: str = FUNCTION) -> str:
    return f"@triton.autotune(configs=[triton.Config({{'BLOCK': 128}}{config})], key=['n']{arguments}){function}"


def jitted(arguments: str) -> str:
    return FUNCTION.replace("@triton.jit", f"@triton.jit({arguments})")


HOOK = "def hook({params}):\n    {body}\n\n\n"
ZEROING = HOOK.format(params="nargs", body='nargs["out_ptr"].zero_()')
WRAPPER = "class Dispatcher:\n    def __init__(self, fn):\n        self.fn = fn\n\n\n@Dispatcher"

EFFECTS: dict[str, tuple[str, str, str]] = {
    # a source, what the manifest calls it, what the message says
    "launch_metadata": (jitted("launch_metadata=lambda *facts: {}"), "launch_metadata", "launch_metadata of @triton.jit"),
    "reset_to_zero": (tuned(", reset_to_zero=['out_ptr']"), "reset_to_zero", r"reset_to_zero=\['out_ptr'\] of @triton.autotune. Triton applies it while it tunes"),
    "restore_value": (tuned(", restore_value=['out_ptr']"), "restore_value", r"restore_value=\['out_ptr'\] of @triton.autotune"),
    "pre_hook": (HOOK.format(params="nargs, reset_only=False", body="pass") + tuned(", pre_hook=hook"), "pre_hook", "pre_hook of @triton.autotune"),
    "post_hook": (HOOK.format(params="nargs, exception=None", body="pass") + tuned(", post_hook=hook"), "post_hook", "post_hook of @triton.autotune"),
    "pre_run_hook": (f"{FUNCTION}\n\nk.add_pre_run_hook(print)\n", "add_pre_run_hook", r"a hook of add_pre_run_hook\(\). Triton calls it before every launch"),
    "Config.pre_hook zeroes": (ZEROING + tuned(config=", pre_hook=hook"), "Config.pre_hook", "which uses out_ptr.zero_. Triton calls it before every launch"),
    "Config.pre_hook reaches out": (f"import math\n{HOOK.format(params='nargs', body='math.floor(1.5)')}{tuned(config=', pre_hook=hook')}", "Config.pre_hook", "which uses math"),
    "Config.pre_hook prints": (HOOK.format(params="nargs", body="print(nargs)") + tuned(config=", pre_hook=hook"), "Config.pre_hook", "which calls print"),
    "Config.pre_hook of its own make": (f"import functools\n{ZEROING}{tuned(config=', pre_hook=functools.partial(hook)')}", "Config.pre_hook", "which is a partial, not a plain function"),
    "Config.pre_hook asks": (HOOK.format(params="nargs", body='return nargs["n"] > 4') + tuned(config=", pre_hook=hook"), "Config.pre_hook", "which asks for the value of n"),
    "Config.pre_hook does nothing": (HOOK.format(params="nargs", body="pass") + tuned(config=", pre_hook=hook"), "Config.pre_hook", "which has no effect that the build can see"),
    "Config.pre_hook raises": (HOOK.format(params="nargs", body='nargs["m"]') + tuned(config=", pre_hook=hook"), "Config.pre_hook", "which raises KeyError: 'm'"),
    "a wrapper of its own": (WRAPPER + FUNCTION, "Dispatcher", r"an object of .*Dispatcher around the function"),
}  # fmt: skip


@pytest.mark.parametrize("name", EFFECTS)
def test_what_a_bundle_does_not_do_is_refused_by_name_unless_it_is_ignored_by_name(plan, name):
    source, called, message = EFFECTS[name]
    with pytest.raises(ManifestError, match=message) as caught:
        plan(source)
    assert f'; if callers do not need it, write ignores = ["{called}"] - at ' in str(caught.value)
    assert "demo.toml:8:1 $.kernel[0].source" in str(caught.value)
    kernel = plan(source, keys=f'ignores = ["{called}"]')
    compiler.variant_key(kernel.variants[0], kernel.source, kernel.place)


def test_each_of_several_effects_is_to_be_ignored(plan):
    source = tuned(", reset_to_zero=['out_ptr'], restore_value=['out_ptr']", function=jitted("launch_metadata=print"))
    names = ["reset_to_zero", "restore_value", "launch_metadata"]
    for left_out in names:
        ignored = [name for name in names if name != left_out]
        with pytest.raises(ManifestError, match=left_out):
            plan(source, keys=f"ignores = {ignored}")
    assert plan(source, keys=f"ignores = {names}")


@pytest.mark.parametrize(
    ("source", "name", "message"),
    [
        (
            FUNCTION,
            "reset_to_zero",
            r"expected ignores to name effects of k's decorators \(it has none\), got 'reset_to_zero'",
        ),
        (tuned(", reset_to_zero=['out_ptr']"), "reset_to_zer", r"did you mean 'reset_to_zero'\?"),
    ],
)
def test_what_is_ignored_is_there(plan, source, name, message):
    known = ['"reset_to_zero"'] if "reset" in source else []
    with pytest.raises(ManifestError, match=message):
        plan(source, keys=f"ignores = [{', '.join([*known, repr(name)])}]")


def test_a_name_that_cannot_be_one_is_refused(plan):
    with pytest.raises(ManifestError, match=r"expected a name such as reset_to_zero or Config\.pre_hook, got 'a b'"):
        plan(FUNCTION, keys='ignores = ["a b"]')


# -- what Triton does at a launch for which it has tuned -------------------------------------------------------------


def test_triton_calls_the_hook_of_the_config_at_every_launch_and_the_tuners_hooks_at_none(monkeypatch):
    """Hold what the messages say against Triton itself; the function stands in for a launch."""
    import triton
    from triton.runtime.autotuner import Autotuner

    called: list[str] = []

    class Function:
        @staticmethod
        def fn() -> None:
            """Let Triton find a name."""

        def run(self, *_: Any, **__: Any) -> None:
            called.append("launch")

    configs = [triton.Config({"B": size}, pre_hook=lambda _: called.append("config")) for size in (1, 2)]
    tuner = Autotuner(
        Function(), ["x", "n"], configs, ["n"], None, None,
        pre_hook=lambda *_, **how: called.append(f"pre {how}"), post_hook=lambda *_, **__: called.append("post"),
        do_bench=lambda call, quantiles: [call(), (1.0, 1.0, 1.0)][1],
    )  # fmt: skip
    for name in ("x", "y"):
        tuner.run(name, 4)
    timed = ["config", "pre {}", "launch", "post"]
    assert called == [*timed, *timed, "pre {'reset_only': True}", "config", "launch", "config", "launch"]


# -- hooks that choose blocks ----------------------------------------------------------------------------------------

BLOCKS = """
def choose(nargs):
    BLOCK_M = nargs["BLOCK_M"]
    if not isinstance(nargs["a"], TensorDescriptor):
        return
    nargs["a"].block_shape = [BLOCK_M, nargs["WIDTH"]]
    if nargs["SPLIT"]:
        nargs["b"].block_shape = [BLOCK_M // 2, 64]
    else:
        nargs["b"].block_shape = [BLOCK_M, 64]


@triton.autotune(
    configs=[triton.Config({"BLOCK_M": m, "SPLIT": s}, pre_hook=choose) for m in (64, 128) for s in (False, True)], key=[]
)
@triton.jit
def k(a, b, WIDTH: tl.constexpr, BLOCK_M: tl.constexpr, SPLIT: tl.constexpr):
    rows: tl.constexpr = BLOCK_M // 2 if SPLIT else BLOCK_M
    b.store([0, 0], b.load([0, 0]) + 1)
"""


def blocks(rows: str, *configs: str) -> str:
    params = f'[kernel.params]\na = "tensordesc<fp16[{{BLOCK_M}}, 32]>"\nb = "tensordesc<fp16[{rows}, 64]>"\n'
    tables = "".join(f"[[kernel.configs]]\n{config}\n" for config in configs)
    return f"{params}[kernel.matrix]\nWIDTH = [32]\n{tables}"


def test_a_hook_that_chooses_blocks_is_honoured_by_the_types(plan):
    kernel = plan(BLOCKS, blocks("{BLOCK_M}", "BLOCK_M = 64\nSPLIT = false", "BLOCK_M = 128\nSPLIT = false"))
    assert kernel.source.effects == ()
    assert len(kernel.source.hooks) == 4
    split = plan(
        BLOCKS, blocks("{ROWS}", "BLOCK_M = 64\nSPLIT = true").replace("WIDTH = [32]", 'WIDTH = [32]\nROWS = ["32"]')
    )
    assert dict(split.variants[0].signature)["b"] == "tensordesc<fp16[32,64]>"
    # a config that the autotuner has not: what it would choose is not known
    assert plan(BLOCKS, blocks("{BLOCK_M}", "BLOCK_M = 32\nSPLIT = false"))


@pytest.mark.parametrize(
    ("rows", "config", "message"),
    [
        ("{BLOCK_M}", "BLOCK_M = 64\nSPLIT = true", r"expected a block of \[32, 64\] for 'b', .* got tensordesc<fp16\[64,64\]>"),
        ("32", "BLOCK_M = 128\nSPLIT = false", r"expected a block of \[128, 64\] for 'b', .* got tensordesc<fp16\[32,64\]>"),
    ],
)  # fmt: skip
def test_a_block_that_the_hook_would_not_choose_is_refused(plan, rows, config, message):
    with pytest.raises(ManifestError, match=message):
        plan(BLOCKS, blocks(rows, config))


# -- values that decorators compute ----------------------------------------------------------------------------------

HEURISTIC = """
@triton.heuristics({heuristics})
@triton.jit
def k(out_ptr, n, BLOCK: tl.constexpr = 64, EVEN: tl.constexpr = False):
    tl.store(out_ptr + tl.arange(0, BLOCK), n)
"""


@pytest.mark.parametrize(
    ("decorator", "by"),
    [
        ("@triton.heuristics({'EVEN': lambda args: args['n'] % 64 == 0})", "@triton.heuristics"),
        ("@triton.autotune(configs=[triton.Config({'EVEN': True})], key=[])", "triton.Config"),
    ],
)
def test_a_constexpr_that_a_decorator_computes_does_not_fall_back_to_its_default(plan, decorator, by):
    source = HEURISTIC.replace("@triton.heuristics({heuristics})", decorator)
    with pytest.raises(ManifestError, match=f"for the kernel's 'EVEN', which {by} computes, got none but its default"):
        plan(source)
    for tables in ('[kernel.derived]\nEVEN = "n % 64 == 0"\n', "[kernel.matrix]\nEVEN = [true]\n"):
        assert plan(source, ENTRY + tables)


def test_an_option_that_a_heuristic_computes_is_the_manifests_to_say(plan):
    source = HEURISTIC.replace("{heuristics}", "{'num_warps': lambda args: 8, 'EVEN': lambda args: True}")
    derived = '[kernel.derived]\nEVEN = "n % 64 == 0"\n'
    with pytest.raises(ManifestError, match="expected 'num_warps' in options or in every config, since @triton"):
        plan(source, ENTRY + derived)
    assert plan(source, ENTRY + derived + "[kernel.options]\nnum_warps = 8\n")
    assert plan(source, ENTRY.replace("BLOCK = 128", "BLOCK = 128\nnum_warps = 8") + derived)
