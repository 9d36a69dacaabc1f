"""Runs Gluon kernels for Hopper without a device: their source as plain Python, one thread for each group of warps.

What is checked is what a kernel's author gets wrong: coordinates, table look-ups, stages and phases. Barriers count
arrivals and bytes as the hardware's do, and a wait that nobody ends fails. TMA promises no order between copies: here
they arrive as late as possible, the newest first. What compilers get wrong is not checked: layouts, registers, proxies.
"""

from __future__ import annotations

import ast
import math
import threading
from collections.abc import Callable, Sequence
from functools import cache
from itertools import accumulate
from pathlib import Path
from types import CodeType, SimpleNamespace
from typing import Any

import torch
from nojit.kernels.products import agreed_sizes
from torch import Tensor


class Pointer:
    """An address, or a tensor of them, in elements of a flat tensor."""

    def __init__(self, memory: Tensor, place: Any = 0) -> None:
        self.memory = memory.view(-1)
        self.place = place

    def __add__(self, step: Any) -> Pointer:
        return Pointer(self.memory, self.place + step)

    def __sub__(self, step: Any) -> Pointer:
        return Pointer(self.memory, self.place - step)

    @property
    def dtype(self) -> SimpleNamespace:
        return SimpleNamespace(element_ty=self.memory.dtype)


class Map:
    """A tensor map of 4 dimensions over a tensor of any strides."""

    def __init__(self, value: Tensor, box: tuple[int, int]) -> None:
        self.value = value
        self.shape = value.shape
        self.dtype = value.dtype
        self.box = box
        self.layout = None
        self.block_type = SimpleNamespace(nbytes=box[0] * box[1] * value.element_size(), shape=(1, 1, *box))

    def window(self, place: Sequence[int]) -> tuple[Tensor | None, tuple[slice, slice]]:
        """Return what of the tensor a box covers, and which part of the box that is."""
        outer, inner = [int(x) for x in place[:2]], [int(x) for x in place[2:]]
        inside = all(0 <= x < size for x, size in zip(outer, self.value.shape[:2], strict=True))
        spans = [
            (max(first, 0), min(first + length, size))
            for first, length, size in zip(inner, self.box, self.value.shape[2:], strict=True)
        ]
        if not inside or any(first >= last for first, last in spans):
            return None, (slice(0), slice(0))
        rows, cols = (slice(first - start, last - start) for (first, last), start in zip(spans, inner, strict=True))
        (top, bottom), (left, right) = spans
        return self.value[outer[0], outer[1], top:bottom, left:right], (rows, cols)

    def fill(self, place: Sequence[int], tile: Tensor) -> None:
        """Copy a box into a tile: zeros where there is nothing."""
        covered, part = self.window(place)
        tile.zero_()
        if covered is not None:
            tile[part] = covered

    def take(self, place: Sequence[int], tile: Tensor) -> None:
        """Copy a tile into a box: what lies outside is left out."""
        covered, part = self.window(place)
        if covered is not None:
            covered.copy_(tile[part])


class BoxMap(Map):
    """A tensor map of any dimensions, whose boxes are tiles of as many rows as all but the last of them count."""

    def __init__(self, value: Tensor, box: Sequence[int], steps: Sequence[int] | None = None) -> None:
        super().__init__(value, (math.prod(box[:-1]), box[-1]))
        self.sizes = box
        self.steps = steps or [1] * len(box)

    def _overlap(self, place: Sequence[int], tile: Tensor) -> tuple[Tensor, Tensor]:
        """Return what of the tensor a box covers, and which part of the box that is."""
        there, here = [], []
        for first, length, size, step in zip(place, self.sizes, self.shape, self.steps, strict=True):
            start = int(first)
            # of the positions start, start + step, ..., those from 0 to size
            low = max(0, -(start // step))
            high = max(low, min(length, -((start - size) // step)))
            there.append(slice(start + step * low, max(start + step * high, 0), step))
            here.append(slice(low, high))
        return self.value[tuple(there)], tile.view(*self.sizes)[tuple(here)]

    def fill(self, place: Sequence[int], tile: Tensor) -> None:
        tile.zero_()
        covered, part = self._overlap(place, tile)
        part.copy_(covered)

    def take(self, place: Sequence[int], tile: Tensor) -> None:
        covered, part = self._overlap(place, tile)
        covered.copy_(part)


class Tile:
    """Shared memory: tiles in panels of so many columns, one of them, or a view of it."""

    def __init__(self, value: Tensor, panel: int = 0) -> None:
        self.value = value
        self.dtype = value.dtype
        self.panel = panel
        self.shape = value.shape
        self.layout = None

    def index(self, number: int) -> Tile:
        return Tile(self.value[number], self.panel)

    def permute(self, order: tuple[int, ...]) -> Tile:
        return Tile(self.value.permute(order))

    def box(self, height: int, width: int, number: int) -> Tile:
        """Return one of the boxes, as wide as panels are, that lie one after the other."""
        assert width == self.panel, "a box is as wide as a panel"
        panel, row = divmod(number, self.value.shape[0] // height)
        return Tile(self.value[row * height : (row + 1) * height, panel * width : (panel + 1) * width])

    def narrowed(self, height: int, width: int) -> Tile:
        """Return what lies first: rows of the only panel, or panels."""
        assert height == self.value.shape[0] or width == self.panel == self.value.shape[1]
        return Tile(self.value[:height, :width], self.panel)

    def slice(self, first: int, count: int, dim: int) -> Tile:
        """Return some of its rows, or of its columns."""
        return Tile(self.value.narrow(dim, first, count))

    def store(self, value: Tensor) -> None:
        self.value.copy_(value)

    def load(self, _layout: None) -> Tensor:
        return self.value.clone()


class AbortedError(Exception):
    """Raised where a part waits for another one that has failed."""


class _Run:
    """Parts of a kernel that run at the same time, and their copies that have not arrived."""

    def __init__(self, parts: int) -> None:
        self.changed = threading.Condition()
        self.has_failed = False
        self.parts = parts
        self.waiting = 0
        self.copies: list[Callable[[], None]] = []

    def wake(self) -> None:
        """Let all parts that wait look again."""
        with self.changed:
            self.waiting = 0
            self.changed.notify_all()

    def fail(self) -> None:
        """End all waits: the part that they wait for may have ended."""
        self.has_failed = True
        self.wake()

    def end(self) -> None:
        """Leave the run, as a part that has ended."""
        with self.changed:
            self.parts -= 1
            self.wake()

    def wait(self) -> None:
        """Wait for a change; the last part to wait lets copies arrive, the newest first. The caller holds `changed`."""
        self.waiting += 1
        while self.waiting == self.parts and self.copies:
            self.copies.pop()()
        assert self.waiting < self.parts, "nobody ends this wait"
        if self.waiting:
            self.changed.wait()


_OWN = threading.local()


def _own_run() -> _Run:
    """Return the run that this thread is a part of, or one of its own."""
    return getattr(_OWN, "run", None) or _Run(1)


class Barrier:
    """An mbarrier: a phase ends when all have arrived and all bytes have come."""

    def __init__(self) -> None:
        self.count = self.pending = self.awaited_bytes = self.phase = 0

    def move(self, arrivals: int, awaited_bytes: int) -> None:
        run = _own_run()
        with run.changed:
            self.pending -= arrivals
            self.awaited_bytes += awaited_bytes
            assert self.pending >= 0, "more arrivals than a phase has"
            if not self.pending and not self.awaited_bytes:
                self.phase += 1
                self.pending = self.count
                run.wake()

    def wait(self, parity: int) -> None:
        run = _own_run()
        with run.changed:
            while self.phase % 2 == parity and not run.has_failed:
                run.wait()
        if run.has_failed:
            raise AbortedError


class Barriers:
    """An array of them."""

    def __init__(self, count: int) -> None:
        self.all = [Barrier() for _ in range(count)]
        self.shape = [count, 1]

    def index(self, number: int) -> Barrier:
        return self.all[number]


def _init(barrier: Barrier, count: int) -> None:
    barrier.count = barrier.pending = count


def _copy_in(tensor_map: Map, place: Sequence[int], barrier: Barrier, box: Tile, pred: bool = True) -> None:
    def arrive() -> None:
        tensor_map.fill(place, box.value)
        barrier.move(0, -tensor_map.block_type.nbytes)

    if pred:
        run = _own_run()
        with run.changed:
            run.copies.append(arrive)
            # a part that runs alone does not wait for a change
            if run.parts == 1:
                run.copies.pop()()


def _copy_out(tensor_map: Map, place: Sequence[int], box: Tile) -> None:
    assert all(start >= 0 for start in place), "what is stored before the start is an illegal instruction"
    tensor_map.take(place, box.value)


def _allocate(of_map: Map, count: int, height: int, width: int, panel: int) -> Tile:
    return Tile(_poisoned((count, height, width), of_map.dtype), panel)


def _allocate_plain(dtype: torch.dtype, shape: Sequence[int], _layout: None) -> Barriers | Tile:
    """Allocate barriers, which alone are int64, or memory for anything else: of a map's boxes, tiles of their last two dimensions."""
    if dtype == torch.int64:
        return Barriers(shape[0])
    return Tile(_poisoned((shape[0], *shape[-2:]) if len(shape) > 3 else shape, dtype))


def _poisoned(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Make memory that nothing was stored to yet."""
    return torch.full(tuple(shape), float("nan") if dtype.is_floating_point else 99, dtype=dtype)


def _load(pointer: Pointer, mask: Any = None, other: float = 0.0, **_: Any) -> Any:
    if not isinstance(pointer.place, Tensor):
        return pointer.memory[pointer.place].item()
    if mask is None:
        return pointer.memory[pointer.place]
    found = pointer.memory[torch.where(mask, pointer.place, 0)]
    return torch.where(mask, found, torch.tensor(other, dtype=found.dtype))


def _multiply(a: Tile | Tensor, b: Tile, acc: Tensor, is_async: bool, use_acc: bool = True) -> Tensor:
    product = getattr(a, "value", a).float() @ b.value.float()
    return acc + product if use_acc else product


def _where(condition: Any, one: Any, other: Any) -> Any:
    if isinstance(condition, Tensor):
        return torch.where(condition, one, other)
    return one if condition else other


def _minimum(one: Any, other: Any) -> Any:
    tensors = [x for x in (one, other) if isinstance(x, Tensor)]
    return tensors[0].clamp(max=other if tensors[0] is one else one) if tensors else min(one, other)


def _maximum(one: Any, other: Any) -> Any:
    tensors = [x for x in (one, other) if isinstance(x, Tensor)]
    return tensors[0].clamp(min=other if tensors[0] is one else one) if tensors else max(one, other)


def _scan(values: Tensor | tuple[Tensor, ...], _axis: int, function: Callable[..., Any]) -> Any:
    """Return for each element what a function of two makes of it and of all before it."""
    rows = zip(*([value.tolist() for value in values] if isinstance(values, tuple) else [values.tolist()]), strict=True)
    found = list(accumulate(rows, lambda one, other: _as_tuple(function(*one, *other))))
    scanned = tuple(torch.tensor(column) for column in zip(*found, strict=True))
    return scanned if isinstance(values, tuple) else scanned[0]


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _assembly(text: str, constraints: str, args: Sequence[Any], *_: Any, **__: Any) -> None:
    """Do nothing but look at where a prefetch goes."""
    assert text.startswith("prefetch."), "nothing else has a stand-in"
    (pointer,) = args
    inside = (pointer.place >= 0) & (pointer.place < len(pointer.memory))
    assert inside.all(), "a prefetch beyond the tensor"


def _static_assert(holds: bool, what: str = "") -> None:
    assert holds, what


def _lanes_of(acc: Tensor) -> tuple[Tensor, Tensor]:
    return torch.arange(acc.shape[0])[:, None], torch.arange(acc.shape[1])[None, :]


def _reinterpret(tile: Tile, _dtype: torch.dtype, shape: Sequence[int], _layout: None) -> Tile:
    """Return the panels of a tile, each as wide as `shape` says."""
    count, height, width = shape
    assert tile.value.shape == (height, count * width), "panels lie beside one another"
    return Tile(tile.value.view(height, count, width).transpose(0, 1))


def _reshaped(memory: Tile, height: int, width: int) -> Tile:
    """Make other tiles, as nobody reads one way what was copied the other."""
    return Tile(torch.full((len(memory.value), height, width), float("nan"), dtype=memory.dtype), memory.panel)


def _store(pointer: Pointer, value: Tensor, mask: Tensor | None = None) -> None:
    if mask is None:
        pointer.memory[pointer.place] = value
    else:
        pointer.memory[pointer.place[mask]] = value[mask]


def _atomic_add(pointer: Pointer, value: Tensor, sem: str) -> None:
    pointer.memory.index_put_((pointer.place,), value, accumulate=True)


def _specialize(parts: Sequence[tuple[Callable[..., None], tuple[Any, ...]]], *_: Any) -> None:
    """Run every part in a thread of its own; raise the first error, after which no part waits any longer."""
    errors: list[BaseException] = []
    own = _Run(len(parts))

    def run(function: Callable[..., None], args: tuple[Any, ...]) -> None:
        _OWN.run = own
        try:
            function(*args)
        except BaseException as error:  # noqa: BLE001 - raised below, in the caller's thread
            errors.append(error)
            own.fail()
        own.end()

    threads = [threading.Thread(target=run, args=part) for part in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def _namespace(program: list[int]) -> dict[str, Any]:
    gl = SimpleNamespace(
        int32=torch.int32,
        int64=torch.int64,
        float32=torch.float32,
        float16=torch.float16,
        bfloat16=torch.bfloat16,
        constexpr=lambda value: value,
        program_id=lambda _: program[0],
        num_programs=lambda _: program[1],
        static_range=range,
        static_assert=_static_assert,
        load=_load,
        to_tensor=lambda value: value,
        store=_store,
        atomic_add=_atomic_add,
        cdiv=lambda a, b: -(-a // b),
        maximum=_maximum,
        minimum=_minimum,
        where=_where,
        num_warps=lambda: 1,
        zeros=lambda shape, dtype, layout: torch.zeros(shape, dtype=dtype),
        zeros_like=torch.zeros_like,
        arange=lambda first, last, layout: torch.arange(first, last),
        max_constancy=lambda value, _: value,
        multiple_of=lambda value, _: value,
        convert_layout=lambda value, *_, **__: value,
        BlockedLayout=lambda *_: None,
        DistributedLinearLayout=lambda *_: None,
        DotOperandLayout=lambda *_: None,
        NVMMASharedLayout=SimpleNamespace(get_default_for=lambda *_: None),
        NVMMADistributedLayout=lambda *_: None,
        SliceLayout=lambda *_: None,
        allocate_shared_memory=_allocate_plain,
        inline_asm_elementwise=_assembly,
        warp_specialize=_specialize,
    )
    # of Triton itself, what its helpers use that Gluon kernels call
    tl = SimpleNamespace(
        program_id=lambda _: program[0],
        num_programs=lambda _: program[1],
        constexpr=gl.constexpr,
        static_range=range,
        load=_load,
        int32=gl.int32,
        minimum=_minimum,
        maximum=_maximum,
        where=_where,
        associative_scan=_scan,
        sum=lambda value, _: value.sum().item(),
        max=lambda value, _: value.max().item(),
        min=lambda value, _: value.min().item(),
        abs=torch.abs,
        exp2=torch.exp2,
        rsqrt=torch.rsqrt,
    )
    barrier = SimpleNamespace(
        init=_init,
        wait=lambda barrier, parity, pred=True: barrier.wait(parity) if pred else None,
        expect=lambda barrier, count, pred=True: barrier.move(1, count) if pred else None,
        arrive=lambda barrier, pred=True: barrier.move(1, 0) if pred else None,
        MBarrierLayout=lambda: None,
    )
    return {
        "_widen": _widen,
        "box": lambda of_map, tile, number: tile.box(*of_map.box, number),
        "box5": lambda of_map, tile, number: tile.box(*of_map.box, number),
        "allocate": _allocate,
        "divide": _divide,
        "divide_by": lambda number, by, inverse: _divide(number, by),
        "reciprocal": lambda by: None,
        "opaque": lambda sizes: sizes,
        "narrowed": lambda tile, height, width: tile.narrowed(height, width),
        "halves_of": lambda acc: acc.chunk(2, 1),
        "lanes_of": _lanes_of,
        "reshaped": _reshaped,
        "reinterpret": _reinterpret,
        "copy_in": _copy_in,
        "copy_out": _copy_out,
        "gl": gl,
        "tl": tl,
        "mbarrier": barrier,
        "tma": SimpleNamespace(store_wait=lambda _: None),
        "fence_async_shared": lambda: None,
        "gdc_launch_dependents": lambda: None,
        "warpgroup_mma": _multiply,
        "warpgroup_mma_wait": lambda _, deps: deps[0] if len(deps) == 1 else deps,
    }


class _Plain(ast.NodeTransformer):
    """Makes plain Python of a kernel: scalars are ints here, which have no `to`, and annotations are not evaluated."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "to" and ast.unparse(node.args[0]) == "gl.int64":
            return ast.Call(ast.Name("_widen", ast.Load()), [node.func.value], [])
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        # layouts mean nothing here
        return ast.Constant(None) if ast.unparse(node).endswith(".type.layout") else node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        return ast.arg(node.arg)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        node.decorator_list = []
        return node


def _divide(number: Any, by: Any) -> tuple[Any, Any]:
    return number // by, number % by


def _widen(value: Any) -> Any:
    return value.to(torch.int64) if isinstance(value, Tensor) else value


def _is_constant(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and ast.unparse(node.value).startswith(("gl.constexpr(", "tl.constexpr("))


def _is_function(node: ast.stmt) -> bool:
    """Say whether a kernel's function is to be run as it is; those that view memory or registers have stand-ins."""
    return isinstance(node, ast.FunctionDef) and node.name not in {
        "allocate",
        "box",
        "box5",
        "divide",
        "divide_by",
        "reciprocal",
        "opaque",
        "narrowed",
        "halves_of",
        "lanes_of",
        "packed",
        "reshaped",
        "unpacked",
    }


@cache
def _plain_code(text: str, name: str) -> CodeType:
    """Compile a file's constants and functions as plain Python."""
    tree = _Plain().visit(ast.parse(text))
    kept = [node for node in tree.body if _is_constant(node) or _is_function(node)]
    return compile(ast.fix_missing_locations(ast.Module(kept, [])), name, "exec")


def functions(
    *paths: Path, program: list[int] | None = None, others: Callable[[Any], dict[str, Any]] | None = None
) -> dict[str, Any]:
    """Return the functions of some files by name, to be called as what runs in `program`: its number, and of how many.

    `others` are stand-ins for what else they call, made of Gluon's own, which they may add to.
    """
    space = _namespace(program or [0, 1])
    space |= {name: getattr(agreed_sizes, name) for name in agreed_sizes.__all__}
    if others is not None:
        space |= others(space["gl"])
    for path in paths:
        exec(_plain_code(path.read_text(), str(path)), space)
    return space


def load(name: str, *paths: Path, others: Callable[[Any], dict[str, Any]] | None = None) -> Callable[..., None]:
    """Return the kernel `name` of some files as a function of a number of programs, its arguments and its constexprs.

    `others` are as in `functions`.
    """
    program = [0, 1]
    space = functions(*paths, program=program, others=others)

    def run(programs: int, *args: Any, **constexprs: Any) -> None:
        for program[0] in range(programs):
            program[1] = programs
            space[name](*args, **constexprs)

    return run
