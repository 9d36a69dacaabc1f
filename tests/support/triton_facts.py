"""Facts about Triton's host-side names, told by Triton and by the stand-in alike: tests compare the two.

    python -m tests.support.triton_facts

Prints a JSON object: for each function of `FACTS`, its result. Nothing here needs a GPU.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
import pickle
import sys
from collections.abc import Callable
from typing import Any

import triton
import triton.language as tl

from tests.support import triton_signatures

FACTS: dict[str, Callable[[], Any]] = {}
SCALARS = [
    "int1",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float8e4b15",
    "float8e4nv",
    "float8e4b8",
    "float8e5",
    "float8e5b16",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "void",
]


def fact(function: Callable[[], Any]) -> Callable[[], Any]:
    FACTS[function.__name__] = function
    return function


def attempt(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Return the result, or the error's type and words."""
    try:
        return plain(function(*args, **kwargs))
    except Exception as error:  # noqa: BLE001 - every error is a fact
        return f"{type(error).__name__}: {error}"


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, bool | int | float | str | type(None)):
        return value
    return f"{type(value).__module__}.{type(value).__qualname__} {value!r}".partition(" at 0x")[0]


def members(value: Any, *skipped: str) -> dict[str, Any]:
    """Return the public attributes, and the results of methods without params."""
    found = {}
    for name in dir(value):
        if name.startswith("_") or name in skipped:
            continue
        given = getattr(value, name)
        found[name] = attempt(given) if callable(given) and not isinstance(given, type) else plain(given)
    return found


@fact
def dtypes() -> Any:
    skipped = ("SIGNEDNESS", "KIND", "to_ir", "with_element_ty", "is_dtype", "int_signedness", "kind")
    return {
        name: [
            str(made),
            repr(made),
            made.name,
            hash(made) == hash(tl.dtype(made.name)),
            type(made).__name__,
            members(made, *skipped),
        ]
        for name in SCALARS
        for made in [getattr(tl, name)]
    }


@fact
def kinds_of_dtypes() -> Any:
    return {
        name: [
            attempt(lambda made=made: made.kind().name),
            getattr(made, "int_signedness", None) and made.int_signedness.name,
        ]
        for name in SCALARS
        for made in [getattr(tl, name)]
    }


@fact
def compared_dtypes() -> Any:
    given = [
        tl.float16,
        tl.dtype("fp16"),
        tl.constexpr(tl.float16),
        tl.float32,
        "fp16",
        None,
        tl.pointer_type(tl.float16),
        tl.pi32_t,
    ]
    return [[attempt(lambda a=a, b=b: bool(a == b)) for a in given] for b in given]


@fact
def dtypes_from_names() -> Any:
    names = ["fp16", "float16", "int1", "i32", "bool", "void", "", 3, tl.constexpr("fp32")]
    return [[attempt(tl.dtype, name), attempt(tl.dtype.is_dtype, name)] for name in names]


@fact
def integer_dtypes() -> Any:
    return [
        attempt(tl.core.get_int_dtype, bits, signed) for bits in (1, 8, 16, 32, 64, 128, 4) for signed in (True, False)
    ]


@fact
def compound_types() -> Any:
    made = [
        tl.pointer_type(tl.float16),
        tl.pointer_type(tl.int64, const=True),
        tl.pointer_type(tl.pointer_type(tl.int8), 3),
        tl.block_type(tl.float16, [16, 32]),
        tl.block_type(tl.int1, [tl.constexpr(8)]),
        tl.core.tuple_type([tl.int32, tl.float16]),
        tl.core.tuple_type([tl.int32, tl.float16], ["a", "b"]),
        tl.core.constexpr_type(3),
        tl.core.constexpr_type(tl.float16),
    ]
    skipped = ("to_ir", "with_element_ty", "is_dtype", "SIGNEDNESS", "KIND", "kind", "types")
    shown = (
        "name",
        "is_ptr",
        "is_block",
        "is_const",
        "shape",
        "numel",
        "nbytes",
        "scalar",
        "element_ty",
        "address_space",
        "const",
        "fields",
    )
    return [
        [
            str(each),
            repr(each) if not isinstance(each, tl.core.tuple_type) else "",
            attempt(each.mangle),
            {name: value for name, value in members(each, *skipped).items() if name in shown},
        ]
        for each in made
    ]


@fact
def wrong_types() -> Any:
    return [
        attempt(tl.pointer_type, 3),
        attempt(tl.pointer_type, "fp16"),
        attempt(tl.block_type, tl.float16, []),
        attempt(tl.block_type, tl.float16, [3]),
        attempt(tl.block_type, tl.float16, [1 << 12, 1 << 12]),
        attempt(tl.block_type, tl.float16, [2.0]),
    ]


@fact
def operators_of_constexprs() -> Any:
    two = ["+", "-", "*", "/", "//", "%", "**", "<", "<=", ">", ">=", "==", "!=", "&", "|", "^", "<<", ">>"]
    found = {}
    for operator in two:
        for left, right in (("c(7)", "c(3)"), ("c(7)", "3"), ("7", "c(3)")):
            text = f"{left} {operator} {right}"
            found[text] = attempt(eval, text, {"c": tl.constexpr})
    for text in (
        "-c(7)",
        "+c(7)",
        "~c(7)",
        "not c(7)",
        "bool(c(0))",
        "[1, 2, 3][c(1)]",
        "list(c([1, 2]))",
        "c(c(c(3))).value",
        "repr(c('a'))",
        "c([4, 5])[1]",
        "c([4, 5])[c(0)]",
        "c(max)(1, 2)",
        "c(3).logical_and(0)",
        "c(3).logical_or(0)",
        "hash(c(3)) == hash(c(3))",
        "c(3) in {c(3): 1}",
        "c(3).type",
        "c(tl.float16) == tl.float16",
        "range(c(3))",
        "c(1.5) + 1",
        "int(c(3))",
    ):
        found[text] = attempt(eval, text, {"c": tl.constexpr, "tl": tl})
    return found


@fact
def unwrapped_constexprs() -> Any:
    unwrap = tl.core._unwrap_if_constexpr
    return [
        attempt(unwrap, each)
        for each in (3, tl.constexpr(3), [tl.constexpr(3), 4], (tl.constexpr(3), [tl.constexpr(4)]), "a", None)
    ]


@fact
def division_and_powers() -> Any:
    numbers = [*range(-3, 70), 127, 128, 129, 2**31 - 1, 2**31, 2**31 + 1]
    cdiv = [[attempt(triton.cdiv, x, y) for x in numbers] for y in (1, 3, 16, 128, -2, 0)]
    return [
        cdiv,
        [attempt(triton.next_power_of_2, n) for n in numbers],
        attempt(triton.cdiv, tl.constexpr(7), 2),
        attempt(triton.cdiv, 7.5, 2),
    ]


@fact
def configs() -> Any:
    def hook(_: Any) -> None: ...

    made = [
        triton.Config({"BLOCK": 128}),
        triton.Config({"BLOCK": 128}, num_warps=4),
        triton.Config({"BLOCK": 128}, num_warps=8, num_stages=2, num_ctas=2, maxnreg=64),
        triton.Config({}, pre_hook=hook),
        triton.Config(kwargs={"A": 1, "B": None}, ir_override="x.ttgir"),
    ]
    return [
        [str(each) for each in made],
        [each.all_kwargs() for each in made],
        [[a == b for a in made] for b in made],
        [[hash(a) == hash(b) for a in made] for b in made],
        [str(pickle.loads(pickle.dumps(each))) for each in made[:3]],
        [sorted(name for name in vars(each)) for each in made],
        attempt(lambda: made[0] == 3),
        len(set(made)),
    ]


@fact
def signatures() -> Any:
    from triton.experimental import gluon
    from triton.runtime import autotuner, jit

    given = [
        triton.jit,
        gluon.jit,
        triton.autotune,
        triton.heuristics,
        triton.Config,
        autotuner.Autotuner,
        autotuner.Heuristics,
        jit.JITFunction,
        triton.set_allocator,
        triton.testing.do_bench,
        triton.testing.do_bench_cudagraph,
        triton.testing.Benchmark,
        triton.reinterpret,
    ]
    return [
        [(each.name, str(each.kind), repr(each.default)) for each in inspect.signature(function).parameters.values()]
        for function in given
    ]


def kernels() -> dict[str, Any]:
    return {"one": triton_signatures.one, "two": triton_signatures.two, "three": triton_signatures.three}


@fact
def params_of_functions() -> Any:
    names = (
        "num",
        "name",
        "annotation",
        "annotation_type",
        "is_constexpr",
        "is_const",
        "has_default",
        "do_not_specialize",
        "do_not_specialize_on_alignment",
    )
    return {
        title: [[plain(getattr(param, name)) for name in names] + [repr(param.default)] for param in function.params]
        for title, function in kernels().items()
    }


@fact
def attributes_of_functions() -> Any:
    names = (
        "__name__",
        "__qualname__",
        "__module__",
        "__doc__",
        "module",
        "_fn_name",
        "arg_names",
        "constexprs",
        "do_not_specialize",
        "do_not_specialize_on_alignment",
        "debug",
        "noinline",
        "version",
        "launch_metadata",
        "kernel",
        "src",
        "raw_src",
        "file_name",
        "pre_run_hooks",
        "hash",
        "used_global_vals",
    )
    found = {title: [plain(getattr(function, name)) for name in names] for title, function in kernels().items()}
    one = kernels()["one"]
    lines = [
        one.starting_line_number - one.fn.__code__.co_firstlineno,
        one.def_file_line_number - one.starting_line_number,
        one.def_file_col_number,
    ]
    more = [
        repr(one),
        one.repr(None),
        one.is_gluon(),
        type(one).__name__,
        type(one).__module__,
        len(one.device_caches),
        str(one.signature),
        type(one.parse()).__name__,
    ]
    return [
        found,
        lines,
        more,
        attempt(one, 1),
        isinstance(one, triton.JITFunction),
        isinstance(one, triton.KernelInterface),
    ]


@fact
def wrong_functions() -> Any:
    def keywords(a, **rest):
        pass

    return [
        attempt(triton.jit, keywords),
        attempt(triton.jit(debug=True), keywords),
        attempt(kernels()["one"].add_pre_run_hook, 3)[:14],
    ]


class Kernel:
    """A kernel that notes how it is run."""

    def __init__(self, log: list[Any], names: str = "x n BLOCK") -> None:
        self.log = log
        self.arg_names = names.split()

        def base_fn() -> None: ...

        self.fn = base_fn

    def run(self, *args: Any, **kwargs: Any) -> Any:
        self.log.append(["run", plain(args), plain(kwargs)])
        return "ran"

    def warmup(self, *args: Any, **kwargs: Any) -> Any:
        self.log.append(["warmup", plain(args), plain(kwargs)])
        return "warm"


class Tensor:
    """A tensor that notes what is done to it."""

    def __init__(self, log: list[Any], name: str, dtype: str = "float32") -> None:
        self.log, self.name, self.dtype = log, name, dtype

    def __repr__(self) -> str:
        return self.name

    def zero_(self) -> None:
        self.log.append(f"zero {self.name}")

    def clone(self) -> Tensor:
        self.log.append(f"clone {self.name}")
        return Tensor(self.log, f"{self.name}'", self.dtype)

    def copy_(self, other: Tensor) -> None:
        self.log.append(f"copy {other.name} to {self.name}")


TIMES = [[0.3] * 3, [0.1] * 3, [0.2] * 3]


def tuned(log: list[Any], **settings: Any) -> Any:
    """Make an autotuner whose second config is best: Triton's by times, the stand-in's by a chooser."""

    def config_hook(nargs: dict[str, Any]) -> None:
        log.append(["config", plain(sorted(nargs))])

    configs = [
        triton.Config({"BLOCK": size}, num_warps=size // 32, pre_hook=config_hook if size == 64 else None)
        for size in (32, 64, 128)
    ]
    times = {str(config): time for config, time in zip(configs, TIMES, strict=True)}
    # nothing runs while Triton "times"
    pending = [*configs]
    settings.setdefault("key", ["n"])
    made = triton.autotune(configs=configs, do_bench=lambda call, quantiles: times[str(pending.pop(0))], **settings)(
        Kernel(log)
    )
    if "nojit" in triton.__version__:
        from nojit.runtime.serve import standin

        def choose(autotuner: Any, key: Any, given: list[Any], nargs: dict[str, Any]) -> Any:
            assert autotuner is made
            assert all(config in configs for config in given)
            assert "n" in nargs
            assert "grid" not in nargs
            return min(given, key=lambda config: times[str(config)])

        standin.set_callbacks(lambda *given: None, choose)
    return made


def noted(**settings: Any) -> Any:
    """Run an autotuned kernel three times."""
    log: list[Any] = []
    hooks = {
        name: functools.partial(
            lambda name, nargs, **kwargs: log.append([name, plain(sorted(nargs)), plain(kwargs)]), name
        )
        for name in settings.pop("hooks", ())
    }
    made = tuned(log, **hooks, **settings)
    results = []
    for n in (7, 7):
        results.append(attempt(made[(1,)], Tensor(log, "x"), n))
        log.append([str(made.best_config), made.nargs])
    made.warmup(Tensor(log, "x"), 3, grid=(2,))
    return [log, results, plain(list(made.cache)), [str(each) for each in made.cache.values()]]


@fact
def autotuner_with_hooks() -> Any:
    return noted(hooks=("pre_hook", "post_hook"))


@fact
def autotuner_that_resets() -> Any:
    return noted(reset_to_zero=["x"])


@fact
def autotuner_that_restores() -> Any:
    return noted(restore_value=["x"])


@fact
def autotuner_that_resets_and_restores() -> Any:
    return noted(restore_value=["x"], reset_to_zero=["x"])


@fact
def autotuner_that_prunes() -> Any:
    def prune(configs: Any, nargs: Any, **kwargs: Any) -> Any:
        return configs[:1]

    return noted(prune_configs_by={"early_config_prune": prune})


@fact
def autotuner_with_a_model() -> Any:
    model = {"perf_model": lambda **nargs: -nargs["BLOCK"], "top_k": 1}
    return noted(prune_configs_by=model)


@fact
def pruned_configs() -> Any:
    log: list[Any] = []
    model = lambda **nargs: -nargs["BLOCK"]  # noqa: E731
    found = []
    for settings in (
        {"top_k": 2},
        {"top_k": 0.5},
        {"top_k": 0.01},
        {"top_k": 9},
        {"top_k": 1.5},
        {"top_k": "a"},
        {"early_config_prune": lambda *given, **kwargs: []},
    ):
        made = tuned(log, prune_configs_by={"perf_model": model, **settings})
        made.nargs = {"n": 3}
        found.append(attempt(lambda made=made: [str(each) for each in made.prune_configs({})]))
    return found


@fact
def keys_of_autotuners() -> Any:
    log: list[Any] = []
    made = tuned(log, key=["n", "BLOCK"])
    found = []
    for args, kwargs in (
        ((Tensor(log, "x"), 3), {}),
        ((Tensor(log, "x", "float16"),), {"n": 4}),
        ((3, Tensor(log, "n")), {}),
    ):
        made.run(*args, grid=(1,), warmup=False, **kwargs) if "nojit" in triton.__version__ else _run_uncached(
            made, args, kwargs
        )
        found.append(plain(list(made.cache)))
    return found


def _run_uncached(made: Any, args: Any, kwargs: Any) -> None:
    made.do_bench = lambda call, quantiles: [1.0] * 3
    made.run(*args, grid=(1,), warmup=False, **kwargs)


@fact
def wrong_autotuners() -> Any:
    log: list[Any] = []
    return [
        attempt(tuned, log, key=["q"]),
        attempt(tuned, log, reset_to_zero=["q", "n"]),
        attempt(tuned, log, restore_value=["z"]),
    ]


@fact
def autotuner_without_configs() -> Any:
    log: list[Any] = []
    made = triton.autotune(configs=[], key=[])(Kernel(log))
    made[(3,)](1, 2)
    return [
        log,
        str(made.best_config),
        made.configs_top_k,
        made.user_defined_pre_hook,
        made.base_fn.__name__,
        made.arg_names,
        plain(made.cache),
    ]


@fact
def heuristics() -> Any:
    log: list[Any] = []
    values = {
        "BLOCK": lambda args: log.append(plain(args)) or args["n"] * 2,
        "EVEN": lambda args: args["BLOCK"] % 4 == 0,
    }
    made = triton.heuristics(values)(Kernel(log))
    return [
        attempt(made[(1,)], "x", 6),
        attempt(made[(2,)], "x", n=3),
        attempt(made.run, "x", grid=None, warmup=False),
        log,
        made.arg_names,
        sorted(made.values),
    ]


@fact
def heuristics_around_autotuners() -> Any:
    log: list[Any] = []
    made = triton.heuristics({"n": lambda args: 5})(tuned(log))
    return [attempt(made[(1,)], Tensor(log, "x")), log]


@fact
def tensors() -> Any:
    import torch

    x = torch.arange(8, dtype=torch.int8)
    as_float = triton.reinterpret(x, tl.float8e5)
    mock = triton.MockTensor(torch.float16, [2, 3])
    return [
        str(as_float), plain(as_float.dtype), as_float.data_ptr() == x.data_ptr(), as_float.stride(), as_float.element_size(), str(as_float.cpu()), str(as_float.clone()), str(as_float.new_empty([2]).shape),
        triton.reinterpret(as_float, torch.int8) is x, str(triton.reinterpret(as_float, tl.float8e4nv)), attempt(triton.reinterpret, 3, tl.int8),
        mock.stride(), mock.data_ptr(), mock.shape, plain(mock.dtype), type(triton.MockTensor.wrap_dtype(torch.int8)).__name__, triton.MockTensor.wrap_dtype(3), triton.MockTensor(torch.int8).shape,
    ]  # fmt: skip


@fact
def tensor_descriptors() -> Any:
    import torch
    from triton.tools.tensor_descriptor import TensorDescriptor

    x = torch.zeros(64, 64, dtype=torch.float16)
    made = TensorDescriptor.from_tensor(x, [16, 16])
    ints = torch.zeros(64, 64, dtype=torch.int32)
    wrong = [
        (x, [64, 64], [64], [16, 16]),
        (x, [64, 64], [64, 1], [16]),
        (x, [], [], []),
        (x, [2] * 6, [1] * 6, [2] * 6),
        (x.view(-1)[1:], [64], [1], [16]),
        (x, [64, 64], [63, 1], [16, 16]),
        (x, [64, 0], [64, 1], [16, 16]),
        (x, [64, 64], [64, 2], [16, 16]),
        (x, [64, 64], [64, 1], [16, 15]),
        (x, [64, 64], [64, 1], [16.0, 16]),
        (x, [64, 64], [64, 1], [1 << 11, 1 << 11]),
        (x, [64, 64], [64, 1], [16, 16], "one"),
        (ints, [64, 64], [64, 1], [16, 16], "nan"),
        (x, [64, 64], [64, 1], [16, 16], "zero", True),
    ]
    fine = [(x, [64, 64], [64, 1], [16, 16], "nan"), (x.float(), [64, 64], [64, 1], [16, 16], "zero", True)]
    shown = [
        attempt(TensorDescriptor, *given).partition("tensor(")[0].partition("TensorDescriptor(base")[0]
        for given in wrong
    ]
    return [
        shown,
        [attempt(TensorDescriptor, *given).partition("(base")[0] for given in fine],
        plain([made.shape == x.shape, made.strides, made.block_shape, made.padding, made.round_f32_to_tf32]),
    ]


def layouts() -> list[tuple[str, Any]]:
    from triton.experimental.gluon import language as gl

    texts = [
        "gl.BlockedLayout([1, 4], [8, 4], [4, 1], [1, 0])",
        "gl.BlockedLayout([1, 4], [8, 4], [4, 1], [1, 0], [[1, 0]])",
        "gl.BlockedLayout(size_per_thread=[c(1)], threads_per_warp=[32], warps_per_cta=[4], order=[0])",
        "gl.BlockedLayout([1], [8, 4], [4, 1], [1, 0])",
        "gl.SliceLayout(0, gl.BlockedLayout([1, 4], [8, 4], [4, 1], [1, 0]))",
        "gl.SliceLayout(1, gl.BlockedLayout([1, 4], [8, 4], [4, 1], [1, 0], [[1, 2]])).cga_layout",
        "gl.DistributedLinearLayout([[0, 1]], [[0, 2]], [[1, 0]], [], [2, 4])",
        "gl.DistributedLinearLayout([[0]], [[0, 2]], [[1, 0]], [], [2, 4])",
        "gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 128, 16])",
        "gl.DotOperandLayout(0, gl.NVMMADistributedLayout([2, 0], [4, 1], [16, 8]), 2)",
        "gl.DotOperandLayout(1, gl.NVMMADistributedLayout([2, 0], [4, 1], [16, 8], [[1, 1]]), 2).cga_layout",
        "gl.NVMMASharedLayout(128, 16)",
        "gl.NVMMASharedLayout(swizzle_byte_width=64, element_bitwidth=c(32), rank=3, transposed=True)",
        "gl.NVMMASharedLayout(48, 16)",
        "gl.NVMMASharedLayout(64, 12)",
        "gl.NVMMASharedLayout(64, 8, fp4_padded=True)",
        "gl.NVMMASharedLayout(128, 16, fp4_padded=True)",
        "gl.NVMMASharedLayout(128, 16, cga_layout=[[1]])",
        "gl.NVMMASharedLayout.get_default_for([64, 64], gl.float16)",
        "gl.NVMMASharedLayout.get_default_for([64, 32], gl.float16)",
        "gl.NVMMASharedLayout.get_default_for([64, 16], gl.float16)",
        "gl.NVMMASharedLayout.get_default_for([64, 8], gl.float16)",
        "gl.NVMMASharedLayout.get_default_for([4, 64], gl.float16)",
        "gl.NVMMASharedLayout.get_default_for([64], gl.float32)",
        "gl.NVMMASharedLayout.get_default_for([2, 16, 64], gl.float32, transposed=True)",
        "gl.NVMMASharedLayout.get_default_for([64, 64], gl.uint8, fp4_padded=True)",
        "gl.NVMMASharedLayout.get_default_for([64, 128], gl.float16, cga_layout=[[0, 1]])",
        "gl.NVMMASharedLayout.get_default_for([64, 3], gl.float16, cga_layout=[[0, 1]])",
        "gl.SwizzledSharedLayout(4, 2, 8, [1, 0])",
        "gl.PaddedSharedLayout.with_identity_for([[32, 4]], [64, 32], [1, 0])",
        "gl.PaddedSharedLayout([[3, 4]], [[1]], [], [2])",
        "gl.PaddedSharedLayout([], [[1]], [], [2])",
        "gl.PaddedSharedLayout([[2, 2], [2, 4]], [[1]], [], [2])",
        "gl.SharedLinearLayout([[0, 1], [1, 0], [2, 0]])",
        "gl.SharedLinearLayout([[0, 1], [1, 0], [2, 0]]).shape",
        "gl.SharedLinearLayout([], [], 16)",
        "gl.SharedLinearLayout([[1]], alignment=3)",
        "gl.AutoLayout()",
        "gl.CoalescedLayout()",
        "gl.AutoLayout().rank",
    ]
    return [(text, attempt(lambda text=text: [eval(text, {"gl": gl, "c": gl.constexpr})])) for text in texts]


@fact
def layouts_of_gluon() -> Any:
    from triton.experimental.gluon import language as gl

    found = {}
    for text, shown in layouts():
        if isinstance(shown, str):
            found[text] = shown
            continue
        made = eval(text, {"gl": gl, "c": gl.constexpr})
        again = eval(text, {"gl": gl, "c": gl.constexpr})
        found[text] = [shown, made == again]
        if hasattr(made, "mangle"):
            found[text] += [
                hash(made) == hash(again),
                made.mangle(),
                attempt(lambda made=made: getattr(made, "rank", None)),
                repr(made.type),
                type(made).__mro__[1].__name__,
            ]
    return found


@fact
def descriptors_of_gluon() -> Any:
    import torch
    from triton.experimental.gluon import language as gl
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor, TensorDescriptorIm2Col

    x = torch.zeros(64, 64, dtype=torch.float16)
    layout = gl.NVMMASharedLayout.get_default_for([64, 64], gl.float16)
    y = torch.zeros(2, 8, 8, 64, dtype=torch.float16)
    made = TensorDescriptor.from_tensor(x, [64, 64], layout)
    wrong = [
        (x, [64, 64], [64, 1], [64], layout),
        (x, [64, 64], [64], [64, 64], layout),
        (x, [64, 64], [64, 1], [64, 64], 3),
        (x, [64, 64], [64, 1], [64, 32], layout),
        (x, [64, 64], [64, 1], [64, 64], gl.NVMMASharedLayout(128, 32)),
        (x, [64, 64], [64, 1], [64, 64], gl.NVMMASharedLayout(128, 16, rank=3)),
        (x, [64, 64], [63, 1], [64, 64], layout),
        (x, [64, 64], [64, 1], [63, 64], layout),
        (x, [64, 64], [64, 1], [64, 64], layout, "one"),
        (x, [64, 64], [64, 1], [64, 64], layout, "zero", True),
        (x.double(), [64, 64], [64, 1], [64, 64], gl.NVMMASharedLayout(128, 64)),
        (x.view(-1)[1:], [64, 64], [64, 1], [64, 64], layout),
    ]
    columns = [
        {"pixel_box_lower_corner": [-1, -1], "pixel_box_upper_corner": [-1, -1]},
        {"pixel_box_lower_corner": [-1, -1]},
        {"pixel_box_lower_corner": [-1], "pixel_box_upper_corner": [-1, -1]},
        {"pixel_box_lower_corner": [-1, -200], "pixel_box_upper_corner": [-1, -1]},
        {"pixel_box_lower_corner": [-1, -1], "pixel_box_upper_corner": [-1, 200], "element_strides": [1, 1, 1, 1]},
        {"element_strides": [1, 1]},
        {"element_strides": [1, 9, 1, 1]},
        {"element_strides": [1, 1, 1, 2]},
    ]
    im2col = [
        attempt(lambda given=given: TensorDescriptorIm2Col.from_tensor(y, [64, 64], layout, **given).__mangle__())
        for given in columns
    ]
    return [
        made.__mangle__(),
        made.mode,
        [attempt(TensorDescriptor, *given).partition("(base")[0] for given in wrong],
        im2col,
        attempt(TensorDescriptorIm2Col, y, [2], [1], [1, 2, 3], layout),
    ]


GROUPS = ("build", "redis", "cache", "compilation", "autotuning", "runtime", "language", "amd", "proton", "nvidia")


@fact
def knobs() -> Any:
    skipped = {"cuobjdump", "nvdisasm", "ptxas", "ptxas_blackwell", "cupti_lib_dir", "cupti_lib_blackwell_dir"}
    found = {}
    for group in GROUPS:
        made = getattr(triton.knobs, group)
        names = [
            name
            for name in dir(made)
            if not name.startswith("_")
            and name
            not in skipped
            | {"knobs", "copy", "reset", "scope", "knob_descriptors", "get_triton_dir", "fp_fusion_enabled"}
        ]
        found[group] = {
            name: plain(getattr(made, name)) if "hook" not in name else type(getattr(made, name)).__name__
            for name in names
        }
        found[f"{group} by variables"] = sorted(made.knob_descriptors)
    return found


@fact
def knobs_from_variables() -> Any:
    from triton import knobs

    found = []
    for value in ("1", "0", "true", "TRUE", "on", "off", "yes", "y", "n", "", " 1", "2"):
        os.environ["TRITON_ALWAYS_COMPILE"] = value
        found.append(attempt(lambda: knobs.compilation.always_compile))
    del os.environ["TRITON_ALWAYS_COMPILE"]
    for value in ("7", "x"):
        os.environ["TRITON_REDIS_PORT"] = value
        found.append(attempt(lambda: knobs.redis.port))
    del os.environ["TRITON_REDIS_PORT"]
    os.environ["TRITON_CACHE_DIR"] = "somewhere"
    found.append(knobs.cache.dir)
    del os.environ["TRITON_CACHE_DIR"]
    os.environ["TRITON_HOME"] = "home"
    found += [knobs.cache.dir, knobs.cache.get_triton_dir("x"), knobs.cache.home_dir]
    del os.environ["TRITON_HOME"]
    return found


@fact
def knobs_that_programs_set() -> Any:
    from triton import knobs

    found = []
    with knobs.compilation.scope():
        knobs.compilation.always_compile = True
        knobs.compilation.use_ir_loc = "ttir"
        found += [
            knobs.compilation.always_compile,
            os.environ.get("TRITON_ALWAYS_COMPILE"),
            os.environ.get("USE_IR_LOC"),
        ]
        knobs.compilation.use_ir_loc = None
        found += [knobs.compilation.use_ir_loc, os.environ.get("USE_IR_LOC")]
        other = knobs.compilation.copy()
        knobs.compilation.reset()
        found += [knobs.compilation.always_compile, other.always_compile]
        knobs.compilation.always_compile = False
        found.append(os.environ.get("TRITON_ALWAYS_COMPILE"))
        del knobs.compilation.always_compile
        found.append(knobs.compilation.always_compile)
    found += [knobs.compilation.always_compile, os.environ.get("TRITON_ALWAYS_COMPILE")]
    log: list[Any] = []
    first, second = (lambda n: log.append(["first", n])), (lambda n: log.append(["second", n]))
    for chain in (knobs.HookChain(), knobs.HookChain(reversed=True)):
        for hook in (first, second, first):
            chain.add(hook)
        chain(3)
        chain.remove(second)
        chain.remove(second)
        chain(4)
    return [found, log, attempt(setattr, knobs.runtime, "anything", 3)]


@fact
def errors() -> Any:
    from triton.compiler.errors import CompilationError, CompileTimeAssertionFailure
    from triton.runtime.errors import AutotunerError, PTXASError

    made = [
        triton.OutOfResources(10, 5, "shared memory"),
        triton.InterpreterError("a"),
        triton.InterpreterError(),
        PTXASError("b"),
        AutotunerError("c"),
        triton.TritonError("d"),
        CompilationError(None, None, "e"),
        CompileTimeAssertionFailure("f(\n  x)", None, "g"),
    ]
    return [
        [
            type(each).__name__,
            type(each).__module__,
            str(each),
            isinstance(each, triton.TritonError),
            attempt(lambda each=each: str(pickle.loads(pickle.dumps(each)))),
        ]
        for each in made
    ]


@fact
def statistics_of_times() -> Any:
    from triton.testing import _quantile, _summarize_statistics

    times = [3.0, 1.0, 2.0, 10.0]
    return [
        attempt(_quantile, times, [0, 0.5, 0.25, 1]), attempt(_quantile, times, [2]), attempt(_quantile, [1.0], [0.3]),
        *(attempt(_summarize_statistics, times, None, mode) for mode in ("min", "max", "mean", "median", "all")),
        attempt(_summarize_statistics, times, [0.5], "mean"), attempt(_summarize_statistics, times, [0.5, 0.2], "mean"),
        attempt(triton.testing.do_bench, print, return_mode="some").partition(":")[0],
    ]  # fmt: skip


@fact
def closeness() -> Any:
    import torch

    close = triton.testing.assert_close
    given = [
        ([1.0, 2.0], [1.0, 2.005]),
        ([1.0, 2.0], [1.0, 2.5]),
        (1.0, 1.005),
        (1.0, 2.0),
        (torch.ones(3, dtype=torch.bfloat16), torch.ones(3)),
        ([float("nan")] * 2, [float("nan")] * 2),
    ]
    tight = [
        attempt(close, x, y, atol=atol, rtol=rtol).partition(":")[0]
        if attempt(close, x, y, atol=atol, rtol=rtol)
        else None
        for x, y in given
        for atol, rtol in ((0, 0), (1, 0), (lambda dtype: 0.0, lambda dtype: 0.5))
    ]
    return [[(attempt(close, x, y) or "").partition(":")[0] for x, y in given], tight]


@fact
def aggregates() -> Any:
    from triton.language.core import _aggregate

    @_aggregate
    class Pair:
        a: tl.constexpr
        b: tl.constexpr = 3

        def total(self):
            return self.a + self.b

    @_aggregate
    class Triple(Pair):
        c: tl.constexpr

    @_aggregate
    class Own:
        a: tl.constexpr

        def __init__(self, a):
            self.a = tl.constexpr(a * 2)

    made = Pair(1)
    return [
        plain([made.a, made.b, made.total()]), Pair.__name__, Pair.__qualname__, Pair.__triton_aggregate__, list(Pair.__aggregate_fields__), plain(Triple(1, 2, 3).c), plain(Own(4).a), isinstance(made, tl.core.base_value),
        attempt(Pair), attempt(Pair, 1, 2, 3), attempt(Pair, 1, a=2), attempt(Pair, 1, z=2), attempt(setattr, made, "a", tl.constexpr(2)), attempt(setattr, made, "z", 2), attempt(setattr, made, "a", 2),
        plain(tl.core.aggregate_replace(made, a=7).a), attempt(tl.core.aggregate_replace, made, z=7), attempt(tl.core.aggregate_replace, 3).partition(",")[0],
        attempt(_aggregate, type("Bad", (int,), {"__annotations__": {}})),
    ]  # fmt: skip


@fact
def without_a_gpu() -> Any:
    from triton.language import target_info
    from triton.runtime import driver

    return [
        attempt(lambda: driver.active),
        attempt(lambda: driver.default),
        plain(target_info.current_target()),
        target_info.is_cuda(),
        target_info.is_hip(),
        target_info.is_hip_cdna3(),
        target_info.cuda_capability_geq(9, 0),
    ]


@fact
def targets() -> Any:
    from triton.backends.compiler import GPUTarget, Language

    made = GPUTarget("cuda", 90, 32)
    return [
        repr(made),
        made == GPUTarget("cuda", 90, 32),
        made == GPUTarget("cuda", 80, 32),
        hash(made) == hash(GPUTarget("cuda", 90, 32)),
        attempt(setattr, made, "arch", 3).partition(":")[0],
        [each.name for each in Language],
        "nvidia" in triton.backends.backends,
    ]


@fact
def constexpr_functions() -> Any:
    @triton.constexpr_function
    def double(x, y=1):
        return x * 2 + y

    class Holder:
        @triton.constexpr_function
        def three(self, x):
            return x * 3

    return [
        double(3),
        double(tl.constexpr(3), y=tl.constexpr(2)),
        Holder().three(tl.constexpr(2)),
        attempt(double),
        type(double).__name__,
        plain(double(3, _semantic=1)),
        double.__name__,
    ]


@fact
def extensions_of_the_language() -> Any:
    @tl.core.builtin
    def mine(x, _semantic=None):
        return x

    @tl.core.extern
    def other(x, _semantic=None):
        return x

    return [
        attempt(mine, 1),
        attempt(other, 1),
        plain(mine(1, _semantic=2)),
        tl.core.is_builtin(mine),
        tl.core.is_builtin(len),
        mine.__name__,
        triton.must_use_result(mine) is mine,
        triton.must_use_result("why")(mine)._must_use_result,
    ]


@fact
def allocators() -> Any:
    from triton.runtime import _allocation

    before = attempt(_allocation._allocator.get(), 1, 1, None)
    triton.set_allocator(lambda size, alignment, stream: size)
    return [before, _allocation._allocator.get()(3, 1, None), _allocation.has_profile_allocator()]


def main() -> None:
    """Print the facts."""
    json.dump({name: attempt(function) for name, function in FACTS.items()}, sys.stdout)


if __name__ == "__main__":
    main()
