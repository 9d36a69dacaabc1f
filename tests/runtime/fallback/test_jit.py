"""Calls that no variant serves: what `NOJIT_MISS` makes of them, and what Triton's JIT is given for them."""

from __future__ import annotations

import contextlib
import gc
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import pytest
from nojit import runtime
from nojit.runtime import _core, loader
from nojit.runtime.errors import ArgumentError, NoMatchingVariantError, SettingError
from nojit.runtime.fallback import jit_call, jit_functions
from nojit.runtime.fallback import policy as miss_policy
from nojit.runtime.observe import events
from nojit.runtime.observe.events import Event
from nojit.runtime.values import DType, FunctionRef

from tests.fakecuda import FakeCuda
from tests.runtime.conftest import VECTOR_ADD, Make
from tests.support.bundles import kernel, make_bundle, target
from tests.support.tensors import InterfaceTensor, StreamObject


class Function:
    """Stands for a ``@triton.jit`` function, and writes down how it is launched."""

    def __init__(self, *names: str, fails: BaseException | None = None) -> None:
        self.arg_names = list(names)
        self.fails = fails
        self.calls: list[tuple[Any, dict[str, Any]]] = []
        self.places: list[Any] = []

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        def launch(**named: Any) -> None:
            self.places.append((torch_of().device_now, torch_of().stream_now))
            self.calls.append((grid, named))
            if self.fails is not None:
                raise self.fails

        return launch


def torch_of() -> Any:
    return sys.modules["torch"]


def make_torch() -> ModuleType:
    """Make as much of torch as says where Triton launches."""
    torch: Any = ModuleType("torch")
    torch.device_now, torch.stream_now = None, None

    @contextmanager
    def current(attribute: str, value: object) -> Iterator[None]:
        before = getattr(torch, attribute)
        setattr(torch, attribute, value)
        try:
            yield
        finally:
            setattr(torch, attribute, before)

    torch.cuda = SimpleNamespace(
        device=lambda device: current("device_now", device),
        stream=lambda stream: current("stream_now", stream),
        ExternalStream=lambda handle, device: (handle, device),
        default_stream=lambda device: ("default", device),
    )
    return torch


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("NOJIT_MISS", raising=False)
    monkeypatch.setattr(jit_functions, "_sources", {})
    monkeypatch.setitem(sys.modules, "torch", make_torch())
    miss_policy.policy.cache_clear()
    yield
    miss_policy.policy.cache_clear()


@pytest.fixture
def tensor(faketorch: ModuleType) -> Callable[..., Any]:
    """Make tensors that have what Triton asks for."""

    class Tensor(faketorch.Tensor):  # type: ignore[name-defined,misc] # the fake framework is compiled by the tests
        def __init__(self, address: int, *facts: Any, **more: Any) -> None:
            super().__init__(address, *facts, **more)
            self.address = address

        def data_ptr(self) -> int:
            return self.address

    return Tensor


Set = Callable[[str], None]


@pytest.fixture
def policy(monkeypatch: pytest.MonkeyPatch) -> Set:
    def set_to(name: str) -> None:
        monkeypatch.setenv("NOJIT_MISS", name)
        miss_policy.policy.cache_clear()

    return set_to


@pytest.fixture
def function(policy: Set) -> Function:
    """The function that kernel ``add`` is compiled from, under the policy ``jit``."""
    policy("jit")
    made = Function("x", "y", "n", "BLOCK")
    runtime.register_source("add", made)
    return made


@pytest.fixture
def heard() -> Iterator[list[Event]]:
    said: list[Event] = []
    listener = events.add(said.append)
    yield said
    events.remove(listener)


def double(tensor: Any, address: int = 0x1000) -> Any:
    """A tensor of a dtype that ``add`` was not built for."""
    return tensor(address, "float64")


OPTIONS = {"num_warps": 4, "num_ctas": 1, "num_stages": 3}

# -- the policy ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [None, "error"])
def test_by_default_a_miss_is_an_error(
    make: Make, tensor: Any, monkeypatch: pytest.MonkeyPatch, fakecuda: FakeCuda, name: str | None
) -> None:
    if name is not None:
        monkeypatch.setenv("NOJIT_MISS", name)
    function = Function("x", "y", "n", "BLOCK")
    runtime.register_source("add", function)
    x = double(tensor)
    with pytest.raises(
        NoMatchingVariantError, match=r'no variant serves this call; .* dtype = \["fp16", "fp32"'
    ) as caught:
        make()(x, x, 7)
    assert caught.value.reasons
    assert "JIT" not in str(caught.value)
    assert function.calls == []
    assert fakecuda.launch_count() == 0


def test_under_jit_triton_makes_the_call_without_a_word(make: Make, tensor: Any, function: Function) -> None:
    x, y = double(tensor), double(tensor, 0x2000)
    assert make()[(5, 2)](x, y, 7) is None
    ((grid, named),) = function.calls
    assert grid == (5, 2, 1)
    assert named == {"x": x, "y": y, "n": 7, "BLOCK": 1024, **OPTIONS}
    assert named["x"] is x


def test_under_warn_it_says_so_once_for_each_kernel_and_kind_of_call(
    make: Make, tensor: Any, function: Function, policy: Set
) -> None:
    policy("warn")
    add, x = make(), double(tensor)
    with pytest.warns(
        runtime.MissWarning, match=r"kernel add: no variant serves this call; its manifest needs dtype"
    ) as said:
        add[(1,)](x, x, 7)
    assert [Path(one.filename) for one in said] == [Path(__file__)]
    assert "test_jit:add" in str(said[0].message)
    add[(1,)](x, x, 8)
    add(double(tensor, 0x3000), x, 8)
    with pytest.warns(runtime.MissWarning):
        add[(1,)](x, x, 7, num_warps=16)
    with pytest.warns(runtime.MissWarning):
        make()[(1,)](x, x, 7)
    assert len(function.calls) == 5


def test_a_warning_that_is_an_error_keeps_the_call_from_being_made(
    make: Make, tensor: Any, function: Function, policy: Set
) -> None:
    policy("warn")
    add, x = make(), double(tensor)
    # as pytest is configured here
    for _ in range(2):
        with pytest.raises(runtime.MissWarning):
            add[(1,)](x, x, 7)
    assert function.calls == []


def test_an_unknown_policy_is_an_error_whenever_it_is_read(make: Make, tensor: Any, policy: Set) -> None:
    policy("warm")
    add, x = make(), double(tensor)
    add(tensor(0x1000, "float32"), tensor(0x2000, "float32"), 7)
    for _ in range(2):
        expected = r"^expected error, warn or jit, got 'warm'; did you mean 'warn'\? - at NOJIT_MISS$"
        with pytest.raises(SettingError, match=expected):
            add(x, x, 7)


def test_the_policy_is_read_once(make: Make, tensor: Any, function: Function, monkeypatch: pytest.MonkeyPatch) -> None:
    add, x = make(), double(tensor)
    add(x, x, 7)
    monkeypatch.setenv("NOJIT_MISS", "error")
    add(x, x, 7)
    assert len(function.calls) == 2


# -- what goes on ----------------------------------------------------------------------------------------------------


def test_each_miss_is_an_event_and_the_first_of_a_kind_says_why(
    make: Make, tensor: Any, function: Function, heard: list[Event]
) -> None:
    add, x = make(), double(tensor)
    missed = runtime.counters().missed
    for n in (1, 2, 3):
        add(x, x, n)
    assert runtime.counters().missed == missed + 3
    first, *later = [event.detail for event in heard if event.kind == "miss"]
    assert first.startswith("no variant serves this call; its manifest needs dtype")
    assert later == ["no variant serves this call"] * 2


def test_calls_that_are_served_know_nothing_of_it(
    make: Make, tensor: Any, function: Function, fakecuda: FakeCuda
) -> None:
    add, x, served = make(), double(tensor), tensor(0x1000, "float32")
    for _ in range(3):
        add(served, served, 7)
        add(x, x, 7)
    assert fakecuda.launch_count() == 3
    assert len(function.calls) == 3


def test_what_is_asked_without_launching_is_answered_as_ever(make: Make, tensor: Any, function: Function) -> None:
    add, x = make(), double(tensor)
    assert add.explain(x, x, 7).chosen is None
    for ask in (add.warmup, add.choices):
        with pytest.raises(NoMatchingVariantError):
            ask(x, x, 7)
    assert function.calls == []


def test_what_triton_raises_reaches_the_caller(make: Make, tensor: Any, function: Function) -> None:
    add, x = make(), double(tensor)
    function.fails = ZeroDivisionError("of Triton's")
    for _ in range(2):
        with pytest.raises(ZeroDivisionError, match="of Triton's"):
            add(x, x, 7)
    function.fails = None
    add(x, x, 7)
    assert len(function.calls) == 3


def test_a_wrong_call_is_wrong_under_any_policy(make: Make, tensor: Any, function: Function) -> None:
    add, x = make(), double(tensor)
    with pytest.raises(ArgumentError, match="y"):
        add(x, 1.5, 7)
    with pytest.raises(ArgumentError, match="unexpected argument 'BLOK'"):
        add(x, x, 7, BLOK=1)
    assert function.calls == []


def test_a_miss_of_another_kernel_within_a_call_is_its_own(make: Make, tensor: Any, function: Function) -> None:
    """A tensor that launches, while a call is read, what its own kernel has no variant for."""
    runtime.register_source("other", Function("n", fails=NoMatchingVariantError("of the inner call")))
    add, other = make(), make({"n": "i32"}, name="other")

    class Launching:
        dtype = "torch.float64"
        device = "cuda:0"

        def data_ptr(self) -> int:
            other[(1,)](1 << 40)
            return 0x1000

    with pytest.raises((NoMatchingVariantError, ArgumentError), match="of the inner call"):
        add(Launching(), double(tensor), 7)
    assert function.calls == []


def test_threads_make_their_calls_and_one_warns(
    make: Make, tensor: Any, function: Function, policy: Set, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy("warn")
    said: list[str] = []
    monkeypatch.setattr(jit_call, "warn_caller", lambda text, _: said.append(text))
    add, x, barrier = make(), double(tensor), threading.Barrier(8)

    def run(number: int) -> None:
        barrier.wait()
        for n in range(20):
            add(x, x, 100 * number + n)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(said) == 1
    assert sorted(named["n"] for _, named in function.calls) == [100 * a + b for a in range(1, 9) for b in range(20)]


@pytest.mark.parametrize("name", ["error", "warn"])
def test_an_error_keeps_no_reference(make: Make, tensor: Any, policy: Set, name: str) -> None:
    policy(name)
    add, x = make(), double(tensor)
    with pytest.raises(NoMatchingVariantError):
        add(x, x, 7)
    gc.collect()
    gc.disable()
    try:
        before = sys.getrefcount(x)
        for _ in range(3):
            with contextlib.suppress(NoMatchingVariantError):
                add(x, x, 7)
        assert sys.getrefcount(x) == before
    finally:
        gc.enable()


def test_no_reference_is_kept(make: Make, tensor: Any, function: Function) -> None:
    add, x, y = make(), double(tensor), double(tensor, 0x2000)
    bound = add.bind(lambda meta: (1,), y=y)
    add(x, y, 7)
    bound(x, n=7)
    function.calls.clear()
    gc.collect()
    before = [sys.getrefcount(one) for one in (x, y, add, bound)]
    for _ in range(100):
        add(x, y, 7)
        bound(x, n=7)
    function.calls.clear()
    gc.collect()
    assert [sys.getrefcount(one) for one in (x, y, add, bound)] == before


# -- what Triton is given --------------------------------------------------------------------------------------------


def test_the_bundles_grid_is_computed_for_the_config(make: Make, tensor: Any, function: Function) -> None:
    x = double(tensor)
    add = make()
    add(x, x, 2049)
    add(x, x, 2049, BLOCK=256)
    add(x, x, 2049, BLOCK=128, num_warps=1)
    assert [grid for grid, _ in function.calls] == [(3,), (9,), (17,)]
    assert [(named["BLOCK"], named["num_warps"]) for _, named in function.calls] == [(1024, 4), (256, 2), (128, 1)]


def test_a_callable_grid_sees_arguments_constexprs_and_options(make: Make, tensor: Any, function: Function) -> None:
    x, seen = double(tensor), []
    make()[lambda meta: seen.append(meta) or [meta["n"], meta["num_warps"]]](x, x, 7, BLOCK=256)
    assert [grid for grid, _ in function.calls] == [(7, 2)]
    assert seen == [{"x": x, "y": x, "n": 7, "BLOCK": 256, **OPTIONS, "num_warps": 2}]
    with pytest.raises(ArgumentError, match="expected a grid of 1 to 3 ints"):
        make()[lambda meta: "wide"](x, x, 7)


def test_a_grid_with_a_zero_compiles_nothing(make: Make, tensor: Any, function: Function) -> None:
    x = double(tensor)
    make()[(0, 4)](x, x, 7)
    make()(x, x, 0)
    assert function.calls == []


def test_without_any_grid_the_call_is_refused(make: Make, tensor: Any, function: Function) -> None:
    x = double(tensor)
    with pytest.raises(ArgumentError, match="the bundle has no grid for this kernel"):
        make(grid=[])(x, x, 7)
    with pytest.raises(ArgumentError, match=r"expected an int for grid\[0\], which is 'n // 0'"):
        make(grid=["n // 0"])(x, x, 7)


def test_bound_arguments_are_arguments(make: Make, tensor: Any, function: Function, fakecuda: FakeCuda) -> None:
    x, y, add = double(tensor), double(tensor, 0x2000), make()
    stream = fakecuda.stream()
    add.bind((3,), y=y, BLOCK=256, stream=stream)(x, n=7)
    add.bind(y=y)(x, n=1025)
    assert function.calls == [
        ((3, 1, 1), {"x": x, "y": y, "n": 7, "BLOCK": 256, **OPTIONS, "num_warps": 2}),
        ((2,), {"x": x, "y": y, "n": 1025, "BLOCK": 1024, **OPTIONS}),
    ]
    assert function.places == [(0, (stream, 0)), (0, None)]


def test_triton_launches_on_the_tensors_device_and_the_given_stream(
    make: Make, tensor: Any, function: Function
) -> None:
    add = make()
    x = tensor(0x1000, "float64", device=1)
    streams = (None, 0x77, StreamObject(0x88), SimpleNamespace(cuda_stream=0x99), 0)
    for stream in streams:
        add(x, x, 7, **({} if stream is None else {"stream": stream}))
    assert function.places == [
        (1, None),
        (1, (0x77, 1)),
        (1, (0x88, 1)),
        (1, (0x99, 1)),
        (1, ("default", 1)),
    ]
    assert all("stream" not in named for _, named in function.calls)
    assert (torch_of().device_now, torch_of().stream_now) == (None, None)


def test_the_first_config_that_may_run_is_taken(make: Make, tensor: Any, function: Function) -> None:
    configs = [
        {"BLOCK": 512, "requires": "n > 100 and aligned(x, 16)"},
        {"BLOCK": 64, "requires": "n > 10"},
        {"BLOCK": 16},
    ]
    add, x = make(configs=configs), double(tensor)
    for n in (1000, 50, 3):
        add(x, x, n)
    add(double(tensor, 0x1008), x, 1000)
    assert [named["BLOCK"] for _, named in function.calls] == [512, 64, 16, 64]


def test_where_no_config_may_run_it_is_the_error_and_says_so(make: Make, tensor: Any, function: Function) -> None:
    add, x = make(configs=[{"BLOCK": 512, "requires": "n > 100"}]), tensor(0x1000, "float32")
    with pytest.raises(
        NoMatchingVariantError, match="; the JIT cannot make the call: the call violates `requires` of every config"
    ) as caught:
        add(x, x, 7)
    assert caught.value.reasons
    assert function.calls == []


def test_derived_constexprs_follow_from_the_call(make: Make, tensor: Any, policy: Set) -> None:
    policy("jit")
    function = Function("x", "n", "BLOCK", "EVEN")
    runtime.register_source("add", function)
    add = make(
        {"x": "*fp16", "n": "i32", "BLOCK": "constexpr", "EVEN": "constexpr"},
        configs=[{"BLOCK": 64}],
        derived={"EVEN": "n % BLOCK == 0"},
        grid=["n + 1"],
    )
    for n in (64, 65):
        add(double(tensor), n)
    assert [(named["EVEN"], grid) for grid, named in function.calls] == [(True, (65,)), (False, (66,))]


def test_what_a_call_means_is_the_callers(
    make: Make, tensor: Any, policy: Set, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy("jit")
    function = Function("x", "MODE", "BLOCK", "FN", "KIND")
    runtime.register_source("add", function)
    add = make(
        {"x": "*fp16", "MODE": "constexpr", "BLOCK": "constexpr", "FN": "constexpr", "KIND": "constexpr"},
        matrix={
            "MODE": ["a", "b"],
            "FN": [FunctionRef("operator:neg"), FunctionRef("test:other")],
            "KIND": [DType("fp16")],
        },
        configs=[{"BLOCK": 1}],
    )
    pytest.importorskip("triton")
    import triton.language as tl

    functions: Any = ModuleType("test_jit_functions")
    functions.neg = Function()
    monkeypatch.setitem(sys.modules, functions.__name__, functions)
    add[(1,)](tensor(0x1000), MODE="c", FN=FunctionRef("test_jit_functions:neg"), KIND=DType("bf16"))
    ((_, named),) = function.calls
    assert named["MODE"] == "c"
    assert named["FN"] is functions.neg
    assert named["KIND"] == tl.bfloat16


PARAMS = {"x": "*fp16", "FN": "constexpr", "BLOCK": "constexpr"}


@pytest.fixture
def evil(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module that tells when it is imported, by a file."""
    ran = tmp_path / "ran"
    (tmp_path / "evil_functions.py").write_text(f"open({str(ran)!r}, 'w').close()\nneg = {{}}\n")
    monkeypatch.syspath_prepend(tmp_path)
    jit_functions.load.cache_clear()
    yield ran
    jit_functions.load.cache_clear()
    sys.modules.pop("evil_functions", None)


@pytest.mark.parametrize("nested", [False, True])
def test_a_bundle_names_no_module_to_import(make: Make, tensor: Any, policy: Set, evil: Path, nested: bool) -> None:
    """A function as the value of a constexpr is a name in a file: who wrote the file must not run code by it."""
    pytest.importorskip("triton")
    policy("jit")
    runtime.register_source("add", Function("x", "FN", "BLOCK"))
    named = FunctionRef("evil_functions:neg")
    add = make(PARAMS, configs=[{"BLOCK": 1, "FN": (1, (named,)) if nested else named}])
    assert refused(add[(1,)], double(tensor)) == (
        "the bundle names the function evil_functions:neg, and no registered source is in evil_functions: "
        "call runtime.register_source"
    )
    assert not evil.exists()
    assert "evil_functions" not in sys.modules


@pytest.mark.parametrize("as_place", [True, False])
def test_a_bundle_may_name_functions_beside_registered_sources(
    make: Make, tensor: Any, policy: Set, evil: Path, as_place: bool
) -> None:
    pytest.importorskip("triton")
    policy("jit")
    function = Function("x", "FN", "BLOCK")
    runtime.register_source("add", function)
    if as_place:
        runtime.register_source("helper", "evil_functions:another")
    else:
        # as Triton's functions know the one that they are made of
        helper: Any = Function()
        helper.fn = SimpleNamespace(__module__="evil_functions")
        runtime.register_source("helper", helper)
    add = make(PARAMS, configs=[{"BLOCK": 1, "FN": FunctionRef("evil_functions:neg")}])
    add[(1,)](double(tensor))
    ((_, named),) = function.calls
    assert named["FN"] is sys.modules["evil_functions"].neg
    assert evil.exists()


@pytest.mark.parametrize(
    ("place", "allowed"),
    [
        ("nojit.kernels.flex.kernel_mods:listed", True),
        ("nojit.kernels.pointwise.__main__:main", False),
        ("nojit.kernels.library:get", False),
        ("nojit.aot.cli:main", False),
    ],
)
def test_of_the_library_the_modules_of_its_kernels_count(
    make: Make, tensor: Any, policy: Set, place: str, allowed: bool
) -> None:
    pytest.importorskip("triton")
    policy("jit")
    function = Function("x", "FN", "BLOCK")
    runtime.register_source("add", function)
    add = make(PARAMS, configs=[{"BLOCK": 1, "FN": FunctionRef(place)}])
    before = set(sys.modules)
    if allowed:
        add[(1,)](double(tensor))
        assert len(function.calls) == 1
    else:
        assert refused(add[(1,)], double(tensor)).startswith(f"the bundle names the function {place}")
        assert place.partition(":")[0] not in set(sys.modules) - before


def test_the_nearest_case_lends_its_config(make: Make, tensor: Any, policy: Set) -> None:
    """Of the configs that were built, those of the call's own constexprs; an axis of dtypes is as the call spells it."""
    policy("jit")
    function = Function("x", "D", "BLOCK")
    runtime.register_source("add", function)
    add = make(
        {"x": "*{dtype}", "D": "constexpr", "BLOCK": "constexpr"},
        matrix={"dtype": ["fp16", "fp32"], "D": [16, 32]},
        configs=[
            {"BLOCK": 1, "requires": "dtype == 'fp16'"},
            {"BLOCK": 2, "requires": "dtype == 'fp64' and D == 48"},
            {"BLOCK": 3},
        ],
    )
    add[(1,)](tensor(0x1000, "float64"), D=16)
    add[(1,)](tensor(0x1000, "float64"), D=48)
    add[(1,)](tensor(0x1000, "float16"), D=48)
    assert [(named["D"], named["BLOCK"]) for _, named in function.calls] == [(16, 3), (48, 2), (48, 1)]


class Pair(NamedTuple):
    left: int
    right: None


def test_tuples_and_none_are_passed_on(make: Make, tensor: Any, policy: Set) -> None:
    policy("jit")
    function = Function("x", "y")
    runtime.register_source("add", function)
    add = make({"x": "(*fp16,(i32,none))", "y": "*fp16"})
    x = tensor(0x1000, "float64")
    add[(1,)]((x, Pair(3, None)), None)
    ((_, named),) = function.calls
    assert named["x"] == (x, Pair(3, None))
    assert isinstance(named["x"][1], Pair)
    assert named["y"] is None


class DescribedTensor:
    """A tensor with a name for its dtype and its size."""

    device = "cuda:0"

    class _DType(str):
        __slots__ = ()
        itemsize = 4
        is_floating_point = True

    def __init__(self, dtype: str) -> None:
        self.dtype, self.shape = self._DType(f"torch.{dtype}"), (64, 128)

    def stride(self) -> tuple[int, int]:
        return (128, 1)

    def data_ptr(self) -> int:
        return 0x1000


def test_descriptors_become_tritons(make: Make, policy: Set) -> None:
    pytest.importorskip("triton")
    from triton.tools.tensor_descriptor import TensorDescriptor

    policy("jit")
    function = Function("x", "n")
    runtime.register_source("add", function)
    add, base = make({"x": "tensordesc<fp16[64,64]>", "n": "i32"}), DescribedTensor("float32")
    given = runtime.TensorDescriptor(base, base.shape, base.stride(), [32, 16], padding="nan")
    add[(1,)](given, 7)
    theirs = TensorDescriptor(base, [64, 128], [128, 1], [32, 16])
    add[(1,)](theirs, 7)
    (_, first), (_, second) = function.calls
    assert first["x"] == TensorDescriptor(base, [64, 128], [128, 1], [32, 16], "nan")
    assert second["x"] is theirs


def test_the_config_says_which_block_a_descriptor_has_that_leaves_it_open(make: Make, policy: Set) -> None:
    pytest.importorskip("triton")
    policy("jit")
    function = Function("x", "D")
    runtime.register_source("add", function)
    add = make({"x": "tensordesc<{dtype}[32,16]>", "D": "constexpr"}, matrix={"dtype": ["fp16"], "D": [1]})
    base = DescribedTensor("float32")
    add[(1,)](_core.Described(base, (128, 1)), D=1)
    ((_, named),) = function.calls
    assert (named["x"].block_shape, named["x"].strides) == ([32, 16], [128, 1])
    with pytest.raises(
        NoMatchingVariantError, match="x has no block_shape, and no config built for this call sets one"
    ):
        add[(1,)](_core.Described(base, (128, 1)), D=2)
    boxed = _core.Described(base, (128, 1), None, (16, 32))
    with pytest.raises(NoMatchingVariantError, match="x sets the box of a copy"):
        add[(1,)](boxed, D=1)


def test_gluon_is_given_its_own_descriptors(make: Make, policy: Set) -> None:
    pytest.importorskip("triton")
    from triton.experimental.gluon.language import NVMMASharedLayout
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

    class Gluon(Function):
        __module__ = "triton.experimental.gluon._runtime"

    policy("jit")
    function = Gluon("x")
    runtime.register_source("add", function)
    base = DescribedTensor("float32")
    make({"x": "tensordesc<fp16[32,32]>"})[(1,)](_core.Described(base, (128, 1)))
    ((_, named),) = function.calls
    assert type(named["x"]) is TensorDescriptor
    assert isinstance(named["x"].layout, NVMMASharedLayout)
    assert named["x"].block_shape == [32, 32]


def test_options_of_the_launch_go_along(make: Make, tensor: Any, function: Function) -> None:
    x = double(tensor)
    make(launch={"cooperative": True, "pdl": True})(x, x, 7)
    ((_, named),) = function.calls
    assert named["launch_cooperative_grid"] is named["launch_pdl"] is True


def test_the_toolchain_of_a_config_is_no_option_of_tritons(make: Make, tensor: Any, function: Function) -> None:
    x = double(tensor)
    make(configs=[{"BLOCK": 64, "num_warps": 2, "toolchain": "3.6"}])(x, x, 7)
    ((_, named),) = function.calls
    assert (named["BLOCK"], named["num_warps"], "toolchain" in named) == (64, 2, False)


@pytest.mark.parametrize("capability", [80, 90])
def test_what_a_device_does_not_have_is_not_asked_of_tritons_launcher(
    tmp_path: Path, fakecuda: FakeCuda, tensor: Any, function: Function, capability: int
) -> None:
    fakecuda.set_devices(capability)
    on = target(f"sm_{capability}")
    path = make_bundle(tmp_path / "pdl.nojit", kernel("add", **VECTOR_ADD, launch={"pdl": True}, on=on), on=on)
    with loader.load(path) as bundle:
        bundle.kernel("add")(double(tensor), double(tensor), 7)
    ((_, named),) = function.calls
    assert named.get("launch_pdl", False) is (capability >= 90)


def test_numbers_get_the_types_and_hints_that_variants_have(make: Make, tensor: Any, policy: Set) -> None:
    """A one is no constant unless a variant has it as one, and what has no hint is never divisible."""
    policy("jit")
    function = Function("x", "m", "n", "k", "scale", "wide")
    runtime.register_source("add", function)
    given: list[Any] = []
    add = make(
        {"x": "*fp16", "m": "i32", "n": "i64", "k": "i32", "scale": "fp64", "wide": "i32"},
        hints=[{"x": 16, "m": 16, "k": 1}],
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jit_call, "_typed", lambda function, *built: given.append(built) or function)
        add[(1,)](double(tensor), 16, 16, 1, 1.0, 2**40)
        add[(1,)](double(tensor), 1, 1, 16, 1.0, 1)
    types = (("n", "i64"), ("scale", "fp64"))
    assert given == [(types, {"n", "wide"}), (types, {"m", "n", "k", "wide"})]


def test_numbers_are_typed_as_variants_type_them() -> None:
    """Triton alone would make an i64 an i32, and an int of 1 a constant."""
    pytest.importorskip("triton")
    from nojit.kernels.pointwise.kernel_generated import vector_add_fwd_kernel
    from nojit.runtime.fallback.jit_call import _typed

    typed = _typed(vector_add_fwd_kernel, (("n", "i64"),), frozenset({"n"}))
    assert type(typed) is type(vector_add_fwd_kernel)
    assert _typed(vector_add_fwd_kernel, (("n", "i64"),), frozenset({"n"})) is typed
    assert _typed(vector_add_fwd_kernel, (), frozenset()) is vector_add_fwd_kernel
    (param,) = [param for param in typed.params if param.name == "n"]
    assert (param.annotation_type, param.do_not_specialize) == ("i64", True)
    assert typed.cache_key == vector_add_fwd_kernel.cache_key
    assert typed.arg_names == vector_add_fwd_kernel.arg_names


# -- where the JIT cannot step in ------------------------------------------------------------------------------------


def refused(add: Any, *args: Any, **named: Any) -> str:
    with pytest.raises(NoMatchingVariantError) as caught:
        add(*args, **named)
    what, _, why = caught.value.what.partition("; the JIT cannot make the call: ")
    assert what.startswith("no variant serves this call; its manifest needs")
    assert caught.value.reasons
    assert caught.value.where
    return why


@pytest.mark.parametrize("name", ["warn", "jit"])
def test_a_source_that_nobody_knows_is_named(make: Make, tensor: Any, policy: Set, name: str) -> None:
    policy(name)
    add, x = make(), double(tensor)
    assert refused(add, x, x, 7) == "its source is not registered: call runtime.register_source"
    function = Function("x", "y", "n", "BLOCK")
    runtime.register_source("add", function, bundle="another")
    assert refused(add, x, x, 7) == "its source is not registered: call runtime.register_source"


def test_a_source_can_be_one_bundles(make: Make, tensor: Any, policy: Set) -> None:
    policy("jit")
    of_all, own = Function("x", "y", "n", "BLOCK"), Function("x", "y", "n", "BLOCK")
    runtime.register_source("add", of_all)
    runtime.register_source("add", own, bundle="own")
    x = double(tensor)
    make()(x, x, 7)
    make(file={"name": "own"})(x, x, 7)
    assert len(of_all.calls) == len(own.calls) == 1


def test_a_source_that_cannot_be_imported_is_named(make: Make, tensor: Any, policy: Set) -> None:
    pytest.importorskip("triton")
    policy("jit")
    add, x = make(), double(tensor)
    for place, why in (
        ("no_such_module:add", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("operator:no_such", "AttributeError: module 'operator' has no attribute 'no_such'"),
    ):
        runtime.register_source("add", place)
        assert refused(add, x, x, 7) == f"{place} cannot be imported: {why}"
    runtime.register_source("add", "operator:neg")
    assert refused(add, x, x, 7) == "operator:neg is no @triton.jit function: register one with runtime.register_source"


def test_without_triton_it_says_so(make: Make, tensor: Any, policy: Set, monkeypatch: pytest.MonkeyPatch) -> None:
    policy("jit")
    monkeypatch.setattr(jit_functions, "find_spec", lambda name: None)
    runtime.register_source("add", "some.module:add")
    x = double(tensor)
    assert refused(make(), x, x, 7) == "Triton is not installed: pip install triton"


def test_without_torch_it_says_so(make: Make, tensor: Any, function: Function, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    x = double(tensor)
    assert refused(make(), x, x, 7) == "torch is not installed, and Triton launches on its streams: pip install torch"


def test_a_function_of_other_params_is_another_kernel(make: Make, tensor: Any, policy: Set) -> None:
    policy("jit")
    runtime.register_source("add", Function("x", "out", "n"))
    x = double(tensor)
    assert refused(make(), x, x, 7) == (
        "the registered function has the params x, out, n, and the bundle's kernel has x, y, n, BLOCK: "
        "register the function that was built, or build again with nojit build"
    )


def test_a_param_called_stream_is_no_stream(make: Make, policy: Set) -> None:
    policy("jit")
    function = Function("stream", "n")
    runtime.register_source("add", function)
    add = make({"stream": "i32", "n": "i32"})
    for named in ({"stream": 2**40, "n": 1}, {"n": 1, "stream": 2**40}):
        assert (
            refused(add, **named)
            == "Triton cannot launch a kernel with a param named stream: rename it and build again"
        )
    assert function.calls == []


def test_what_is_no_tensor_to_triton_is_named(
    make: Make, tensor: Any, faketorch: ModuleType, function: Function, fakecuda: FakeCuda
) -> None:
    address, x = 0x4000_0000, double(tensor)
    fakecuda.add_memory(address, 4096)
    for y in (InterfaceTensor(address, "float64"), faketorch.Tensor(address, "float64"), address):
        assert refused(make(), x, y, 7) == "y is not a tensor with data_ptr(), which Triton needs: pass a torch tensor"
    assert function.calls == []


@pytest.mark.parametrize("source", ["add", "add.py", "kernels/add.py:add", 7, None])
def test_what_is_registered_is_a_function_or_its_place(source: object) -> None:
    with pytest.raises(
        ArgumentError, match=r"expected a @triton.jit function or module:function, got .* - at source of"
    ):
        runtime.register_source("add", source)


def test_decorators_are_taken_off(make: Make, tensor: Any, function: Function) -> None:
    wrapper = type("Autotuner", (), {"fn": function, "__getitem__": None})
    outer = type("Heuristics", (), {"fn": wrapper(), "__getitem__": None})
    runtime.register_source("add", outer())
    x = double(tensor)
    make()(x, x, 7)
    assert len(function.calls) == 1


# -- devices and programs --------------------------------------------------------------------------------------------


def test_a_device_without_a_bundle_is_a_miss_like_any_other(
    tmp_path: Path, tensor: Any, function: Function, heard: list[Event], policy: Set
) -> None:
    policy("warn")
    files = []
    for arch, block in (("sm_100a", 64), ("sm_120a", 32)):
        on = target(arch)
        facts = VECTOR_ADD | {"configs": [{"BLOCK": block}]}
        path = tmp_path / f"{arch}.nojit"
        files.append(make_bundle(path, kernel("add", **facts, on=on), on=on))
    with loader.load(tmp_path) as bundle:
        add, x = bundle.kernel("add"), tensor(0x1000, "float32")
        with pytest.warns(runtime.MissWarning, match="kernel add: bundle has sm_100a, sm_120a; device is sm_90"):
            add(x, x, 65)
        add(x, x, 64)
    assert [(grid, named["BLOCK"]) for grid, named in function.calls] == [((2,), 64), ((1,), 64)]
    assert [event.bundle for event in heard if event.kind == "miss"] == ["", ""]


def test_a_remembered_call_of_an_operator_may_miss(make: Make, tensor: Any, function: Function) -> None:
    add = make()
    recipe = _core.Recipe(1, ((add, (None, None, 7), (), ((0, 0), (1, 0)), False),), (0,))
    x = double(tensor)
    assert recipe(x) is x
    ((_, named),) = function.calls
    assert (named["x"], named["y"], named["n"]) == (x, x, 7)


PROGRAM = """
import sys
sys.modules["triton"] = sys.modules["torch"] = None
from nojit import runtime
print("nojit.runtime.fallback.jit_functions" in sys.modules)
runtime.register_source("add", "some.where:add")
bundle = runtime.load(sys.argv[1])
add = bundle.kernel("add")
add[(1,)](1)
print("nojit.runtime.fallback.jit_call" in sys.modules)
try:
    add[(1,)](1, num_warps=16)
except runtime.NoMatchingVariantError as error:
    print(error.what.partition("JIT")[2])
except runtime.SettingError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", "expected error, warn or jit, got '' - at NOJIT_MISS"),
        ("error", ""),
        ("warn", " cannot make the call: Triton is not installed: pip install triton"),
        ("jit", " cannot make the call: Triton is not installed: pip install triton"),
        ("JIT", "expected error, warn or jit, got 'JIT' - at NOJIT_MISS"),
    ],
)
def test_a_program_without_triton_works_under_any_policy(
    tmp_path: Path, fakecuda: FakeCuda, monkeypatch: pytest.MonkeyPatch, name: str, said: str
) -> None:
    path = make_bundle(tmp_path / "a.nojit", kernel("add", {"n": "i32"}))
    monkeypatch.setenv("NOJIT_MISS", name)
    ran = subprocess.run([sys.executable, "-c", PROGRAM, str(path)], capture_output=True, text=True, check=False)
    assert (ran.stdout.splitlines(), ran.stderr) == (["False", "False", said], "")


def test_the_sources_of_a_twin_are_those_of_its_bundle() -> None:
    of_acme, of_any = Function("x"), Function("x")
    runtime.register_source("add", of_acme, bundle="acme")
    runtime.register_source("add", of_any)
    assert jit_functions.function_of("add", "acme") is of_acme
    assert jit_functions.function_of("add", "acme-debug") is of_acme
    assert jit_functions.function_of("add", "other-debug") is of_any
