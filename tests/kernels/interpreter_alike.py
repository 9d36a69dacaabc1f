"""Runs operators of Triton's interpreter on tensors and numbers of many types; prints those that differ once it is hastened.

    TRITON_INTERPRET=1 python -m tests.kernels.interpreter_alike

Each runs twice as it is hastened: what is kept of the first time must be right for the second, which has other data.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.interpreter import TensorHandle

from tests.kernels.interpreter_haste import hasten

TYPES = (
    tl.int1, tl.int8, tl.uint8, tl.int32, tl.uint32, tl.int64, tl.float16, tl.bfloat16, tl.float32, tl.float64,
    tl.float8e4nv, tl.pointer_type(tl.float16), tl.pointer_type(tl.int32),
)  # fmt: skip
SHAPES: tuple[tuple[int, ...], ...] = ((), (4,), (4, 1), (1, 4), (2, 4, 4))
NUMBERS = (0, 3, -2, 1 << 31, 1 << 40, 0.0, -0.0, 0.1, 1e300, float("inf"), True, False, tl.constexpr(2), None)
BINARY = (
    "__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__truediv__", "__rtruediv__", "__floordiv__",
    "__mod__", "__and__", "__or__", "__xor__", "__lshift__", "__rshift__", "__lt__", "__ge__", "__eq__", "__ne__",
)  # fmt: skip
SLICES = (None, slice(None), (slice(None), None), (None, slice(None)), (None, slice(None), None, slice(None)), (0,))


def tensor(of: Any, shape: tuple[int, ...], seed: int) -> Any:
    """Make a tensor of small numbers of one type."""
    raw = np.random.default_rng(seed).integers(1, 100, shape or (1,))
    data = raw.astype(interpreter._get_np_dtype(of)) if of is not tl.int1 else raw % 2 == 1
    return tl.tensor(TensorHandle(data, of), tl.block_type(of, list(shape)) if shape else of)


def work() -> Iterator[tuple[str, Callable[[int], Any]]]:
    """List what is run, by name; the number says with which data. Operators take turns over the types and shapes."""
    places = list(enumerate(itertools.product(TYPES, SHAPES)))
    for (left, one), (right, other) in itertools.product(places, places):
        turn = 3 * left + 5 * right
        if one[1] == other[1] or turn % 7 == 0:
            for name in _in_turn(turn, 2):
                yield (
                    f"{one} {name} {other}",
                    lambda seed, n=name, a=one, b=other: getattr(tensor(*a, seed), n)(tensor(*b, seed + 2)),
                )
    for place, one in places:
        # of numbers all with each, as what is kept of one must not serve another
        for name, number in itertools.product(_in_turn(place, 3), NUMBERS):
            yield (
                f"{one} {name} {number!r}",
                lambda seed, n=name, a=one, x=number: getattr(tensor(*a, seed), n)(x),
            )
        # whose data are said to be of the type that was compared
        yield f"{one} < 50 & {one} < 60", lambda seed, a=one: (tensor(*a, seed) < 50) & (tensor(*a, seed) < 60)
        for index in SLICES:
            yield f"{one}[{index}]", lambda seed, a=one, i=index: tensor(*a, seed)[i]
        for to, rounding in itertools.product(TYPES, (None, "rtne", "rtz") if one[1] == (4, 1) else (None,)):
            yield (
                f"{one} to {to} {rounding}",
                lambda seed, a=one, to=to, way=rounding: tensor(*a, seed).to(to, fp_downcast_rounding=way),
            )


def _in_turn(turn: int, count: int) -> list[str]:
    return [BINARY[(turn + 7 * number) % len(BINARY)] for number in range(count)]


def outcome(run: Callable[[int], Any], seed: int) -> tuple[object, ...]:
    """Return what came of it, in what can be compared."""
    try:
        got = run(seed)
    except Exception as error:  # noqa: BLE001 - to be the same as well
        return type(error), str(error)
    if not isinstance(got, tl.tensor):
        return (repr(got),)
    data = got.handle.data
    shape = [int(size) for size in got.shape]
    return str(got.type), str(got.dtype), shape, str(got.handle.dtype), str(data.dtype), data.shape, data.tobytes()


def outcomes() -> dict[str, list[tuple[object, ...]]]:
    scope = interpreter._patch_lang(tensor)
    try:
        with np.errstate(all="ignore"):
            return {name: [outcome(run, seed) for seed in range(2)] for name, run in work()}
    finally:
        scope.restore()


def main() -> None:
    """Compare, and say what differs."""
    # debug mode, which kernels do not run in, asks for overflows
    interpreter.interpreter_builder.options = interpreter.InterpreterOptions(sanitize_overflow=False)
    before = outcomes()
    hasten()
    after = outcomes()
    different = [f"{name}: {before[name]}, then {after[name]}" for name in before if before[name] != after[name]]
    raised = sum(isinstance(got[0][0], type) for got in before.values())
    sys.stdout.write("\n".join([*different[:20], f"{len(before)} compared, {raised} raise, {len(different)} differ\n"]))


if __name__ == "__main__":
    main()
