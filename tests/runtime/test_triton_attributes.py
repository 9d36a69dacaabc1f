"""A kernel as code meets it that was written for Triton's functions and autotuners."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from nojit.runtime.errors import ArgumentError, DriverError, NojitError
from nojit.runtime.kernel import Kernel, Warmed

from tests.fakecuda import FakeCuda
from tests.runtime.conftest import Make


def test_fn_is_what_an_autotuner_wraps(make: Make, tensor: Any, fakecuda: FakeCuda) -> None:
    add = make()
    x, y = tensor(0x1000), tensor(0x2000)
    add.fn[(3,)](x, y, 5, BLOCK=256, num_warps=2)
    assert (fakecuda.last_launch().grid, fakecuda.last_launch().block) == ((3, 1, 1), (64, 1, 1))
    add.fn.run(x, y, 5, grid=(2,), warmup=False, BLOCK=1024, num_warps=4)
    assert (fakecuda.last_launch().grid, fakecuda.last_launch().block) == ((2, 1, 1), (128, 1, 1))
    assert add.fn.fn.arg_names == add.arg_names == ["x", "y", "n", "BLOCK"]
    assert add.fn.__name__ == add.__name__ == add.name == "add"
    assert [(param.num, param.name, param.is_constexpr, param.has_default) for param in add.params] == [
        (0, "x", False, False),
        (1, "y", False, False),
        (2, "n", False, False),
        (3, "BLOCK", True, False),
    ]
    assert [(config.kwargs, config.num_warps) for config in add.configs] == [({"BLOCK": 1024}, 4), ({"BLOCK": 256}, 2)]


def test_params_tell_their_defaults(make: Make) -> None:
    add = make(
        {"x": "*fp16?", "scale": "fp32", "MODE": "constexpr"}, matrix={"MODE": ["a"]}, defaults={"x": None, "MODE": "a"}
    )
    assert [(param.has_default, param.default) for param in add.params] == [(True, None), (False, None), (True, "a")]


def test_args_are_run_one_by_one(make: Make, tensor: Any, fakecuda: FakeCuda) -> None:
    add = make({"n": "i32", "args": "(*fp16,i32)"}, defaults={"args": ()})
    assert [(param.name, param.is_rest) for param in add.params] == [("n", False), ("args", True)]
    add.run(5, tensor(0x1000), 7, grid=(1,))
    add.fn[(1,)](5, tensor(0x1000), 7)
    assert [launch.ints()[:3] for launch in fakecuda.launches()] == [(5, 0x1000, 7)] * 2


def test_run_launches_as_a_grid_does(make: Make, tensor: Any, fakecuda: FakeCuda) -> None:
    add, stream = make(), fakecuda.stream()
    arguments = (tensor(0x1000), tensor(0x2000), 5_000)
    add.run(*arguments, grid=lambda meta: (meta["n"] // meta["BLOCK"],), stream=stream)
    assert (fakecuda.last_launch().grid[0], fakecuda.last_launch().stream) == (4, stream)
    add.run(*arguments, grid=[7, 2])
    assert fakecuda.last_launch().grid == (7, 2, 1)
    add.run(*arguments)
    assert fakecuda.last_launch().grid[0] == 5, "the bundle's"
    warmed = add.run(*arguments, grid=(1,), warmup=True)
    assert isinstance(warmed, Warmed)
    assert fakecuda.launch_count() == 3


def test_the_best_config_is_that_of_the_last_launch(make: Make, tensor: Any, fakecuda: FakeCuda) -> None:
    add = make()
    x, y = tensor(0x1000), tensor(0x2000)
    assert not hasattr(add, "best_config")
    with pytest.raises(AttributeError, match="expected a launch before, got none"):
        add.best_config  # noqa: B018 - asking is the test
    add.warmup(x, y, 5)
    assert not hasattr(add, "best_config")
    for launch in (add[(1,)], add.bind((1,)), lambda *arguments, **named: add.run(*arguments, grid=(1,), **named)):
        for block, warps in ((256, 2), (1024, 4), (256, 2)):
            launch(x, y, 5, BLOCK=block)
            best = add.best_config
            assert (best.kwargs, best.num_warps, best.num_ctas, best.num_stages) == ({"BLOCK": block}, warps, 1, 3)
            assert (best.maxnreg, best.pre_hook) == (None, None)
            assert best.all_kwargs() == {"BLOCK": block, "num_warps": warps, "num_ctas": 1, "num_stages": 3}
            assert str(best) == f"BLOCK: {block}, num_warps: {warps}, num_ctas: 1, num_stages: 3, maxnreg: None"
            add[(1,)](x, y, 5, **best.all_kwargs())
            assert fakecuda.last_launch().block == (32 * warps, 1, 1)
    fakecuda.fail("cuLaunchKernel", 1, call=0)
    with pytest.raises(DriverError):
        add[(1,)](x, y, 5, BLOCK=1024)
    assert add.best_config.kwargs == {"BLOCK": 256}, "what failed was no launch"


def test_the_best_config_may_be_asked_for_while_others_launch(make: Make, tensor: Any) -> None:
    add = make()
    x, y = tensor(0x1000), tensor(0x2000)
    add[(1,)](x, y, 5)

    def launch(block: int) -> None:
        for _ in range(300):
            add[(1,)](x, y, 5, BLOCK=block)

    threads = [threading.Thread(target=launch, args=(block,)) for block in (256, 1024)]
    for thread in threads:
        thread.start()
    seen = {add.best_config.kwargs["BLOCK"] for _ in range(300)}
    for thread in threads:
        thread.join()
    assert seen <= {256, 1024}


# options that change nothing

AS_BUILT: dict[str, Any] = {
    "enable_fp_fusion": True, "maxnreg": None, "launch_pdl": False, "launch_cooperative_grid": False, "debug": False,
    "sanitize_overflow": True, "extern_libs": None, "default_dot_input_precision": "tf32", "num_ctas": 1, "num_stages": 3,
}  # fmt: skip
OTHERS: dict[str, Any] = {
    "enable_fp_fusion": False, "maxnreg": 64, "launch_pdl": True, "launch_cooperative_grid": True, "debug": True,
    "default_dot_input_precision": "ieee", "ptx_options": "-v",
}  # fmt: skip


def ways(add: Kernel) -> list[Callable[..., Any]]:
    return [
        add[(1,)],
        add,
        lambda *arguments, **named: add.bind((1,), **named)(*arguments),
        lambda *arguments, **named: add.run(*arguments, grid=(1,), **named),
        add.explain,
        add.choices,
        add.warmup,
    ]


@pytest.mark.parametrize("option", AS_BUILT)
def test_an_option_that_is_what_was_built_changes_nothing(
    make: Make, tensor: Any, fakecuda: FakeCuda, option: str
) -> None:
    add = make()
    for call in ways(add):
        for named in ({option: AS_BUILT[option]}, {option: AS_BUILT[option], "BLOCK": 256}):
            call(tensor(0x1000), tensor(0x2000), 5, **named)
    assert {launch.block[0] for launch in fakecuda.launches()} == {64, 128}
    assert fakecuda.launch_count() == 8


@pytest.mark.parametrize("option", OTHERS)
def test_an_option_that_is_another_says_what_was_built(
    make: Make, tensor: Any, fakecuda: FakeCuda, option: str
) -> None:
    add = make()
    built = {**AS_BUILT, "ptx_options": None, "debug": None}[option]
    for call in ways(add):
        with pytest.raises(ArgumentError) as caught:
            call(tensor(0x1000), tensor(0x2000), 5, **{option: OTHERS[option]})
        assert str(caught.value).startswith(f"expected {option}={built!r}, as every variant was built, or {option} in ")
        assert caught.value.argument == option
    assert fakecuda.launch_count() == 0


def test_an_option_that_a_config_sets_chooses_as_before(make: Make, tensor: Any, fakecuda: FakeCuda) -> None:
    add = make()
    with pytest.raises(NojitError, match="num_warps is 4, got 8"):
        add[(1,)](tensor(0x1000), tensor(0x2000), 5, num_warps=8)
    with pytest.raises(ArgumentError, match="unexpected argument 'enable_fp_fusio'; did you mean 'enable_fp_fusion'"):
        add[(1,)](tensor(0x1000), tensor(0x2000), 5, enable_fp_fusio=True)
