"""Launch what an operator launches a second time through Triton itself, and compare every bit that either writes.

A `Replay` is a provider of kernels (`nojit.kernels.library.override`). Each call is resolved by the bundle once per
config that can serve it; that very variant is then compiled by the Triton at hand and launched by Triton's own
launcher on copies of the operands. Of kernels that add up in any order, which no two launches do alike, sums are compared up to
rounding.
"""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from nojit.aot.plan.function_facts import SourcePlace
from nojit.aot.plan.plan import Plan, PlannedKernel
from nojit.aot.variants.variant import Variant
from nojit.kernels.manifest_kernels import by_position
from nojit.runtime.call.call_facts import expression_value
from nojit.runtime.call.constexprs import row_names
from nojit.runtime.errors import NoMatchingVariantError
from nojit.runtime.explain.explanation import choose
from nojit.runtime.expr import expression as expr
from nojit.runtime.table.table import KernelTable
from nojit.runtime.values import identity
from torch import Tensor


@dataclass
class Tally:
    """What was compared of one kernel."""

    table: KernelTable
    rows: set[int] = field(default_factory=set)
    launches: int = 0
    different: list[str] = field(default_factory=list)
    unlike: set[int] = field(default_factory=set)
    """Rows whose maps take other boxes, or steps, than Triton's can: nothing to compare with."""

    @property
    def variants(self) -> int:
        return len(self.table)

    def reached(self) -> list[str]:
        """Name the variants that calls reached."""
        return [self.table.label(row) for row in sorted(self.rows | self.unlike)]


def eligible_rows(kernel: Any, args: Sequence[Any], named: Mapping[str, Any]) -> list[tuple[int, dict[str, Any]]]:
    """List the variants that each config which can serve a call would run, with the arguments that ask for it."""
    device, facts = kernel._facts(*args, **named)
    bundle = kernel._bundles.bundle_for(kernel._bundles.capability(None, device))
    table, call = kernel._bundles.table(bundle), kernel._call_facts(bundle, facts)
    rows = []
    for config in table.configs:
        wanted = replace(call, constexprs=dict(call.constexprs) | dict(config.constexprs), options=dict(config.options))
        try:
            row = choose(table, wanted).row
        except NoMatchingVariantError:
            continue
        asked = dict(config.constexprs) | {name: value for name, value in config.options if value is not None}
        # a caller may name part of a config
        if all(asked[name] == named[name] for name in asked.keys() & named.keys()):
            rows.append((row, {name: value for name, value in asked.items() if name not in named}))
    return rows


class Steered:
    """Gives kernels that run not the first config that serves a call but the one whose turn it is."""

    def __init__(self, bundle: Any) -> None:
        self._bundle = bundle
        self.turn = 0
        self.turns = 1
        """How many configs the last round of calls could choose from."""
        self.tallies: dict[str, Tally] = {}

    def __call__(self, name: str) -> Callable[..., None]:
        kernel = self._bundle.kernel(name)
        tally = self.tallies.setdefault(name, Tally(kernel._bundles.table(kernel._bundles.bundle_for(_capability()))))

        def launch(*args: Any, **named: Any) -> None:
            rows = eligible_rows(kernel, args, named)
            self.turns = max(self.turns, len(rows))
            row, asked = rows[min(self.turn, len(rows) - 1)]
            tally.rows.add(row)
            tally.launches += 1
            kernel(*args, **named, **asked)

        return launch

    def rounds(self) -> Iterator[int]:
        """Count turns until every config of the calls in between has had one."""
        self.turn, self.turns = 0, 1
        while self.turn < self.turns:
            yield self.turn
            self.turn += 1


def _capability() -> int:
    major, minor = torch.cuda.get_device_capability()
    return 10 * major + minor


class Replay:
    """Gives kernels that compare each launch with Triton's."""

    def __init__(self, bundle: Any, plan: Plan, in_any_order: Collection[str] = ()) -> None:
        self._bundle = bundle
        self._in_any_order = in_any_order
        self._planned = {kernel.spec.name: kernel for kernel in plan.kernels}
        self.tallies: dict[str, Tally] = {}

    def reachable(self, name: str, reaches: Callable[[KernelTable, int], bool]) -> list[str]:
        """Name the variants of a kernel that calls can ask for."""
        table = self._table(name)
        return [table.label(row) for row in range(len(table)) if reaches(table, row)]

    def _table(self, name: str) -> KernelTable:
        kernel = self._bundle.kernel(name)
        table: KernelTable = kernel._bundles.table(kernel._bundles.bundle_for(_capability()))
        return table

    def __call__(self, name: str) -> _Replayed:
        kernel, table = self._bundle.kernel(name), self._table(name)
        tally = self.tallies.setdefault(name, Tally(table))
        return _Replayed(
            kernel, table, self._planned[name], tally, same_sums if name in self._in_any_order else same_bits
        )


class _Replayed:
    def __init__(
        self,
        kernel: Any,
        table: KernelTable,
        planned: PlannedKernel,
        tally: Tally,
        are_same: Callable[[Tensor, Tensor], bool],
    ) -> None:
        self._kernel, self._table, self._planned, self._tally = kernel, table, planned, tally
        self._are_same = are_same
        self._variants = {_key(variant, table): variant for variant in planned.variants}
        self._compiled: dict[int, Any] = {}

    def __call__(self, *args: Any, **named: Any) -> None:
        args, constexprs = by_position(self._kernel.name, args, named)
        for row, asked in eligible_rows(self._kernel, args, constexprs):
            self._compare(row, args, constexprs | asked)
        self._kernel(*args, **constexprs)

    def _compare(self, row: int, args: Sequence[Any], given: Mapping[str, Any]) -> None:
        if any(map(_is_beyond_triton, args)):
            self._tally.unlike.add(row)
            return
        self._tally.rows.add(row)
        self._tally.launches += 1
        # nothing is written to what is expanded, nor could be restored
        bases = (getattr(arg, "base", arg) for arg in args)
        tensors = [arg for arg in bases if isinstance(arg, Tensor) and not _is_expanded(arg)]
        before = [tensor.clone() for tensor in tensors]
        self._kernel(*args, **given)
        # of two launches, one that never ends is told by the line that waits for it
        torch.cuda.synchronize()
        ours = [tensor.clone() for tensor in tensors]
        restore(tensors, before)
        self._launch_with_triton(row, args)
        torch.cuda.synchronize()
        if not all(self._are_same(mine, theirs) for mine, theirs in zip(ours, tensors, strict=True)):
            self._tally.different.append(self._table.label(row))
        # what is added to, or counted in, the next launch must find as this one did
        restore(tensors, before)

    def _launch_with_triton(self, row: int, args: Sequence[Any]) -> None:
        table = self._table
        runtime = dict(zip((param.name for param in table.params), args, strict=False))
        constexprs = table.constexprs(row)
        names = {**row_names(table, row), "arch": _capability()}
        names |= {k: v.data_ptr() if isinstance(v, Tensor) else v for k, v in runtime.items() if not _is_described(v)}
        grid = [expr.parse(text).evaluate({k: expression_value(v) for k, v in names.items()}) for text in table.grid]
        if row not in self._compiled:
            self._compiled[row] = compile_with_triton(self._variants[_row_key(table, row)], self._planned.place)
        types = dict(zip(table.runtime_params(), _row_key(table, row)[0], strict=True))
        runtime = {k: _as_triton(v, types[k]) if _is_described(v) else v for k, v in runtime.items()}
        ordered = [runtime.get(param.name, constexprs.get(param.name, param.default)) for param in table.params]
        self._compiled[row][(*grid, 1, 1)[:3]](*ordered)


def _is_expanded(value: Tensor) -> bool:
    return any(stride == 0 and size > 1 for stride, size in zip(value.stride(), value.shape, strict=True))


def _is_described(value: Any) -> bool:
    return hasattr(value, "block_shape")


def _is_beyond_triton(value: Any) -> bool:
    geometry = getattr(value, "geometry", None)
    return geometry is not None and (geometry.box is not None or geometry.steps is not None)


def _as_triton(descriptor: Any, kind: str) -> Any:
    """Describe the same tensor to Triton, with the block of the variant and its default layout."""
    from nojit.runtime.types.names import descriptor_parts, dtype_name
    from triton.experimental.gluon.language import NVMMASharedLayout
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor
    from triton.language.core import dtype

    element, block = descriptor_parts(kind)
    named = dtype(dtype_name(element))
    layout = NVMMASharedLayout.get_default_for(list(block), named)
    return TensorDescriptor(descriptor.base, list(descriptor.shape), list(descriptor.strides), list(block), layout)


def restore(tensors: Sequence[Tensor], saved: Sequence[Tensor]) -> None:
    """Write back what tensors held, unseen by autograd, which would refuse to go on from what it saved."""
    for tensor, held in zip(tensors, saved, strict=True):
        tensor.data.copy_(held)


def same_bits(left: Tensor, right: Tensor) -> bool:
    """Say whether two tensors hold the same bits; NaNs are compared like any others."""
    kinds = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    kind = kinds[left.element_size()]
    return torch.equal(left.contiguous().view(kind), right.contiguous().view(kind))


def same_sums(left: Tensor, right: Tensor) -> bool:
    """Say whether two tensors hold the same bits, or floats that are the same sums up to rounding."""
    if same_bits(left, right):
        return True
    if not left.is_floating_point():
        return False
    apart = 200 * torch.finfo(left.dtype).eps * float(right.abs().max())
    return torch.allclose(left, right, rtol=0.0, atol=apart)


def _key(variant: Variant, table: KernelTable) -> tuple[Any, ...]:
    types = dict(variant.signature)
    return (
        tuple(types[name] for name in table.runtime_params()),
        tuple(sorted((name, identity(value)) for name, value in variant.constexprs)),
        variant.hints,
        variant.config.options,
        variant.config.requires,
    )


def _row_key(table: KernelTable, row: int) -> tuple[Any, ...]:
    case, config, hints, _ = table.key(row)
    return (
        table.signatures[table.cases[case].signature],
        tuple(sorted((name, identity(value)) for name, value in table.constexprs(row).items())),
        table.hint_sets[hints],
        table.configs[config].options,
        table.configs[config].requires,
    )


def compile_with_triton(variant: Variant, place: SourcePlace) -> Any:
    """Compile as Triton's JIT does: line info, Triton's own cache."""
    import triton
    from nojit.aot.compile.triton.compiler import ast_source, gpu_target

    options = {name: value for name, value in variant.options if value is not None}
    return triton.compile(ast_source(variant, place), target=gpu_target(variant.arch), options=options)


def fill_tritons_cache(variant: Variant, place: SourcePlace) -> None:
    compile_with_triton(variant, place)


def compile_ahead(plan: Plan) -> int:
    """Fill Triton's cache on every core, so that comparing takes minutes and not an hour; return how many variants there are."""
    spawn = multiprocessing.get_context("spawn")
    pairs = [(variant, kernel.place) for kernel in plan.kernels for variant in kernel.variants]
    with ProcessPoolExecutor(mp_context=spawn) as executor:
        return len(list(executor.map(fill_tritons_cache, *zip(*pairs, strict=True))))


def built_alike(folder: Path, arch: str) -> Path:
    """Return the only bundle of a folder, which the compilers of this machine must have built."""
    from nojit.aot.compile.triton import compiler
    from nojit.aot.inspect.contents import open_bundle

    (path,) = folder.glob(f"*-{arch}.nojit")
    with open_bundle(path) as bundle:
        given = dict(bundle.index.toolchain)
    # a wheel of Triton for another Python makes the same images of other files
    expected = {tool: said for tool, said in compiler.toolchain(arch) if not tool.endswith(".digest")}
    assert {tool: given.get(tool) for tool in expected} == expected, f"{path}: other compilers built it"
    return path


def plan_for(manifests: Sequence[Path], arch: str, profile: str) -> Plan:
    """Expand the manifests as the bundle's build did."""
    from nojit.aot.compile.triton import compiler
    from nojit.aot.manifest.reader import find_manifests
    from nojit.aot.plan.planner import make_plans

    (plan,) = make_plans(find_manifests(manifests), [arch], profile, compiler)
    return plan


def build_here(
    manifests: Sequence[Path], arch: str, out: Path, profile: str = "full", kernels: Sequence[str] = ()
) -> Path:
    """Build every variant of a profile for `arch` with the Triton of this machine, of some kernels or all; return the bundle."""
    command = [
        sys.executable,
        "-m",
        "nojit",
        "build",
        *map(str, manifests),
        "--arch",
        arch,
        "--profile",
        profile,
        *(word for name in kernels for word in ("--kernel", name)),
    ]
    subprocess.run([*command, "--out", str(out), "--cache-dir", str(out / "cache"), "-q"], check=True)
    (bundle,) = out.glob("*.nojit")
    return bundle
