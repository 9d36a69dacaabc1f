"""Calls of dense products: every dtype, layout, alignment, tile and epilogue, and gradients of all operands."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import ModuleType
from unittest import mock

import torch
from nojit.kernels.bmm import baddbmm, bmm, launch, op, reference
from nojit.kernels.bmm.cost import TILES, UNSPLIT_TILES, Schedule
from nojit.kernels.mm_plus_mm import launch as pair_prepared
from nojit.kernels.mm_plus_mm import mm_plus_mm
from nojit.kernels.mm_plus_mm import op as pair_op
from nojit.kernels.mm_plus_mm import reference as pair_reference
from torch import Tensor

from tests.gpu.call import Call, Outputs, view
from tests.gpu.matmul_calls import TF32_FACTOR, switched

# batch, M, N, K
WHOLE = (2, 1312, 2112, 144)
FEW = (3, 7, 208, 144)
CUT = (1, 48, 208, 2064)
# columns, and depth, for few rows by all tiles, and by parts of the depth
BROAD = ((17_408, 144), (208, 2064))
# columns, and depth, for all configs of the kernels of few rows
SHALLOW = ((262, 1032), (1000, 4104), (4104, 520))
RAGGED = (1, 47, 203, 2061)
# tiles for half of an H200's programs after a whole wave
SHARED = (2, 1312, 2112, 1048)
# M, N and both depths
PAIRS = (1440, 2304, 144, 80)
_ACTIVATIONS = ("relu", "square", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh")


@dataclass(frozen=True)
class Case:
    """One product."""

    dtype: torch.dtype
    sizes: tuple[int, int, int, int] = WHOLE
    trans: tuple[bool, bool] = (False, False)
    offset: int = 0
    tf32: bool = False
    maps: bool = True
    """Whether the kernel over tensor maps may run where it can."""
    activation: str = "none"
    added: bool = False
    shared: bool = False
    """Whether programs share the last wave."""
    padded: bool = False
    """Whether the right operand is copied to rows that start on lines of memory."""
    few: bool = False
    """Whether the kernel of few rows may run."""
    schedule: Schedule | None = None
    """The tile and the parts of K, if the caller names them."""

    @property
    def label(self) -> str:
        flags = (
            *(f"{name} by columns" for name, on in zip("ab", self.trans, strict=True) if on),
            "tf32" if self.tf32 else "",
            "" if self.maps else "pointers",
            "shared" if self.shared else "",
            "padded" if self.padded else "",
            "few" if self.few else "",
            f"{self.schedule.parts} parts, tiles of {self.schedule.rows} x {self.schedule.cols}"
            if self.schedule
            else "",
            f"offset {self.offset}" if self.offset else "",
            self.activation if self.activation != "none" else "",
            "added" if self.added else "",
        )
        return f"{str(self.dtype)[6:]} {self.sizes} {' '.join(filter(None, flags))}".strip()

    def inputs(self) -> tuple[Tensor, Tensor, Tensor]:
        """Make what is added, and both operands."""
        batch, m, n, k = self.sizes

        def operand(seed: int, rows: int, cols: int, columns: bool) -> Tensor:
            shape = (batch, cols, rows) if columns else (batch, rows, cols)
            if self.dtype == torch.int8:
                generator = torch.Generator("cuda").manual_seed(seed)
                count = batch * rows * cols + self.offset
                flat = torch.randint(-128, 128, (count,), generator=generator, device="cuda", dtype=self.dtype)
                value = flat[self.offset :].view(shape)
            else:
                value = view(shape, self.dtype, seed, offset=self.offset)
            return value.mT if columns else value

        a, b = operand(1, m, k, self.trans[0]), operand(2, k, n, self.trans[1])
        source = view((m, n), torch.float32, 3, offset=self.offset)
        return source.to(self.dtype), a, b

    def call(self, *, gradients: bool = False) -> Call:
        def run(functions: tuple[object, object], wide: torch.dtype | None = None, *, cut: bool = False) -> Outputs:
            source, *factors = self.inputs()
            values = [source, *map(as_tf32, factors)] if cut else [source, *factors]
            values = [x if wide is None or self.dtype == torch.int8 else x.to(wide) for x in values]
            operands = values if self.added else values[1:]
            words = {"activation": self.activation}
            if self.added:
                words |= {"beta": 0.5, "alpha": 0.25}
            ways = {"shared": self.shared, "padded": self.padded, "few": self.few, "schedule": self.schedule}
            with switched(self.tf32 and wide is None), prepared_anew(op, launch, self.maps, **ways):
                if not gradients:
                    return (functions[self.added](*operands, **words),)  # type: ignore[operator]
                for value in operands:
                    value.requires_grad_()
                out = functions[self.added](*operands, **words)  # type: ignore[operator]
                grad = view(tuple(out.shape), self.dtype, 4).to(out.dtype)
                return (out.detach(), *torch.autograd.grad(out, operands, grad))

        factor = TF32_FACTOR if self.tf32 else 2.0
        count = 3 if self.added else 2
        return Call(
            f"bmm {self.label}",
            lambda: run((bmm, baddbmm)),
            lambda: run((reference.bmm, reference.baddbmm), torch.float64),
            lambda: (
                in_fp32(run((reference.bmm, reference.baddbmm), torch.float64, cut=True))
                if self.tf32
                else run((reference.bmm, reference.baddbmm))
            ),
            (2.0, *(3.0,) * count) if gradients else (factor,),
        )


@dataclass(frozen=True)
class PairCase:
    """One sum of two products."""

    dtype: torch.dtype
    trans: tuple[bool, bool, bool, bool] = (False,) * 4
    sizes: tuple[int, int, int, int] = PAIRS
    offset: int = 0
    tf32: bool = False
    maps: bool = True
    schedules: tuple[Schedule, ...] = (Schedule(128, 128),)
    """Tile of one launch, or tile and parts of K of each product."""

    @property
    def label(self) -> str:
        names = "".join(name for name, on in zip("abcd", self.trans, strict=True) if on)
        flags = (
            f"{names} by columns" if names else "",
            "tf32" if self.tf32 else "",
            "" if self.maps else "pointers",
            f"offset {self.offset}" if self.offset else "",
            " and ".join(f"{one.rows} x {one.cols} in {one.parts}" for one in self.schedules),
        )
        return f"{str(self.dtype)[6:]} {self.sizes} {' '.join(filter(None, flags))}".strip()

    def inputs(self) -> list[Tensor]:
        """Make the factors of both products."""
        m, n, k, more = self.sizes
        made = []
        for seed, (shape, columns) in enumerate(zip(((m, k), (k, n), (m, more), (more, n)), self.trans, strict=True)):
            value = view(shape[::-1] if columns else shape, self.dtype, seed, offset=self.offset)
            made.append(value.mT if columns else value)
        return made

    def call(self, *, gradients: bool = False) -> Call:
        def run(function: Callable[..., Tensor], wide: torch.dtype | None = None, *, cut: bool = False) -> Outputs:
            values = [as_tf32(value) if cut else value for value in self.inputs()]
            values = [value if wide is None else value.to(wide) for value in values]
            anew = prepared_anew(pair_op, pair_prepared, self.maps, schedules=self.schedules)
            with switched(self.tf32 and wide is None), anew:
                if not gradients:
                    return (function(*values),)
                out = function(*(value.requires_grad_() for value in values))
                grad = view(tuple(out.shape), self.dtype, 9).to(out.dtype)
                return (out.detach(), *torch.autograd.grad(out, values, grad))

        factor = TF32_FACTOR if self.tf32 else 2.0
        return Call(
            f"mm_plus_mm {self.label}",
            lambda: run(mm_plus_mm),
            lambda: run(pair_reference.mm_plus_mm, torch.float64),
            lambda: (
                in_fp32(run(pair_reference.mm_plus_mm, torch.float64, cut=True))
                if self.tf32
                else run(pair_reference.mm_plus_mm)
            ),
            (2.0, *(3.0,) * 4) if gradients else (factor,),
        )


@contextmanager
def prepared_anew(
    operator: ModuleType,
    preparing: ModuleType,
    maps: bool,
    *,
    shared: bool = False,
    padded: bool = False,
    few: bool = False,
    schedule: Schedule | None = None,
    schedules: tuple[Schedule, ...] = (),
) -> Iterator[None]:
    """Prepare calls anew, for the kernels that may run."""

    def schedule_of(*_: object, has_epilogue: bool, **__: object) -> Schedule | None:
        own = shared or padded or has_epilogue
        return schedule or (Schedule(64, 64, is_shared=shared and not has_epilogue, is_copied=padded) if own else None)

    with ExitStack() as stack:
        stack.callback(operator._MEMO.forget)
        operator._MEMO.forget()
        if not maps:
            stack.enter_context(mock.patch.object(preparing, "takes_maps", return_value=False))
        if preparing is pair_prepared:
            stack.enter_context(mock.patch.object(preparing, "schedules_of", return_value=schedules))
        if preparing is launch:
            stack.enter_context(mock.patch.object(launch, "schedule_of", schedule_of))
            if not few:
                stack.enter_context(mock.patch.object(launch, "few_rows_of", return_value=None))
        yield


def as_tf32(value: Tensor) -> Tensor:
    """Round to the nearest TF32.

    What TF32 costs by itself is the yardstick of products in it: whether cuBLAS uses it depends on shapes.
    """
    bits = value.contiguous().view(torch.int32)
    rounded = (bits + 0xFFF + ((bits >> 13) & 1)) & ~0x1FFF
    return torch.empty_like(value).copy_(rounded.view(torch.float32))


def in_fp32(values: Outputs) -> Outputs:
    return tuple(value.float() for value in values)


def _kinds() -> Iterator[tuple[torch.dtype, bool]]:
    yield from ((dtype, False) for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.int8))
    yield torch.float32, True


def cases() -> Iterator[Case | PairCase]:
    """List cases that together reach every variant."""
    yield from _bmm_cases()
    yield from _few_cases()
    yield from _shared_cases()
    yield from _tile_cases()
    yield from _pair_cases()


def _pair_cases() -> Iterator[PairCase]:
    for dtype, tf32 in _kinds():
        if dtype == torch.int8:
            continue
        yield PairCase(dtype, sizes=(47, 203, 61, 125), tf32=tf32)
        yield PairCase(dtype, offset=1, tf32=tf32)
        if dtype.itemsize == 2:
            for trans in itertools.product((False, True), repeat=4):
                yield PairCase(dtype, trans)
            for trans, tile in itertools.product(
                itertools.product((False, True), repeat=2), ((64, 64), (64, 128), (128, 256))
            ):
                yield PairCase(dtype, (*trans, *trans), schedules=(Schedule(*tile),))
        for left, right in itertools.product((False, True), repeat=2):
            yield PairCase(dtype, (left, right, left, right), tf32=tf32, maps=False)
    for trans in itertools.product((False, True), repeat=2):
        yield PairCase(torch.bfloat16, (*trans, *trans), schedules=(Schedule(192, 128), Schedule(128, 192, 2)))
    for rows in (1, 24):
        yield PairCase(torch.float16, sizes=(rows, 520, 4104, 72), schedules=(Schedule(64, 64, 7), Schedule(64, 128)))


def _bmm_cases() -> Iterator[Case]:
    for (dtype, tf32), trans in itertools.product(_kinds(), itertools.product((False, True), repeat=2)):
        for maps in (True, False) if dtype.itemsize == 2 else (True,):
            yield Case(dtype, WHOLE, trans, tf32=tf32, maps=maps)
            yield Case(dtype, FEW, trans, tf32=tf32, maps=maps)
            yield Case(dtype, CUT, trans, tf32=tf32, maps=maps)
        yield Case(dtype, WHOLE, trans, offset=1, tf32=tf32)
        yield Case(dtype, FEW, trans, offset=1, tf32=tf32)
        yield Case(dtype, RAGGED, trans, tf32=tf32)
        if dtype != torch.int8:
            yield Case(dtype, WHOLE, trans, tf32=tf32, activation="gelu", added=True)
    for dtype, activation in itertools.product((torch.float16, torch.bfloat16, torch.float32), _ACTIVATIONS):
        for sizes in (FEW, CUT, RAGGED):
            yield Case(dtype, sizes, activation=activation, added=True)
        yield Case(dtype, FEW, activation=activation, maps=False)


def _few_cases() -> Iterator[Case]:
    """List products of which fewer than 64 rows are copied at once."""
    dtypes, counts = (torch.float16, torch.bfloat16), (1, 9, 24)
    for dtype, rows, columns, (n, k) in itertools.product(dtypes, counts, (False, True), BROAD):
        yield Case(dtype, (1, rows, n, k), (False, columns))
        yield Case(dtype, (1, rows, n, k), (False, columns), activation="gelu", added=True)
    for dtype, rows, (n, k) in itertools.product(dtypes, (1, 2, 3, 8, 9, 16), SHALLOW):
        yield Case(dtype, (1, rows, n, k), (False, True), few=True)
        yield Case(dtype, (1, rows, n, k), (False, True), activation="gelu", added=True, few=True)
    yield Case(torch.bfloat16, (1, 1000, 5, 1032), (False, True), added=True, few=True)
    yield Case(torch.bfloat16, (1, 4104, 1, 1032), (False, True), added=True, few=True)


def _shared_cases() -> Iterator[Case]:
    """List products whose programs share the last wave, and products of copies."""
    for dtype, trans in itertools.product((torch.float16, torch.bfloat16), itertools.product((False, True), repeat=2)):
        yield Case(dtype, SHARED, trans, shared=True)
        yield Case(dtype, SHARED, trans, shared=True, padded=True)
        yield Case(dtype, WHOLE, trans, padded=True)
    # few tiles and many steps, and the reverse
    yield Case(torch.bfloat16, (5, 200, 520, 4104), shared=True)
    yield Case(torch.bfloat16, (133, 136, 264, 72), shared=True)
    # an epilogue
    yield Case(torch.bfloat16, (3, 136, 264, 200), padded=True, activation="gelu", added=True)


def _tile_cases() -> Iterator[Case]:
    """List products with each tile, whole and in parts of K, also of few rows."""
    dtypes = (torch.float16, torch.bfloat16)
    for dtype, trans, tile in itertools.product(dtypes, itertools.product((False, True), repeat=2), TILES):
        side = tile.rows, tile.cols
        yield Case(dtype, (3, 392, 520, 1032), trans, schedule=Schedule(*side))
        if side not in UNSPLIT_TILES:
            yield Case(dtype, (2, 200, 520, 2056), trans, schedule=Schedule(*side, 3))
    for dtype, rows, columns in itertools.product(dtypes, (9, 24), (False, True)):
        for schedule in (
            Schedule(64, 64),
            Schedule(64, 128),
            Schedule(64, 256),
            Schedule(64, 64, 2),
            Schedule(64, 128, 3),
        ):
            yield Case(dtype, (1, rows, 520, 1032), (False, columns), schedule=schedule)
    # an epilogue, and more tiles than programs
    yield Case(torch.bfloat16, (1, 200, 264, 1032), schedule=Schedule(192, 128, 2), activation="gelu", added=True)
    yield Case(torch.bfloat16, (5, 1000, 2056, 264), schedule=Schedule(192, 128))
    yield Case(torch.bfloat16, (5, 1000, 2056, 264), schedule=Schedule(192, 192))


def gemm_calls() -> Iterator[Call]:
    for case in cases():
        yield case.call()


def gradient_calls() -> Iterator[Call]:
    for dtype, trans in itertools.product(
        (torch.float16, torch.bfloat16, torch.float32), itertools.product((False, True), repeat=2)
    ):
        for added in (False, True):
            yield Case(dtype, (2, 104, 208, 136), trans, added=added).call(gradients=True)
        yield PairCase(dtype, (*trans, *trans), (104, 208, 136, 72)).call(gradients=True)
