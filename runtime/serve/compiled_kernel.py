"""The result of a launch and of ``warmup`` of a served function, with the interface of Triton's ``CompiledKernel``."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from nojit.runtime import _core
from nojit.runtime.base.launch_options import BUILT_WITH
from nojit.runtime.call.constexprs import row_constexprs

if TYPE_CHECKING:
    from nojit.runtime.first_call.arch_bundle import ArchBundle
    from nojit.runtime.serve.kernel import ServedKernel
    from nojit.runtime.table.table import KernelTable

__all__ = ["Compiled"]


class Compiled:
    """A variant of a bundle, as programs look at compiled kernels of Triton. Facts are computed on request.

    Args:
        kernel: the kernel.
        plan: its variant on a device.
        table: the variants.
    """

    def __init__(self, kernel: ServedKernel, plan: _core.Plan, table: KernelTable) -> None:
        self._kernel = kernel
        self._plan = plan
        self._table = table

    def __repr__(self) -> str:
        return f"Compiled({self.name}, variant={self._plan.label})"

    @property
    def _bundle(self) -> ArchBundle:
        bundle: ArchBundle = self._plan.payload[0]
        return bundle

    @property
    def _row(self) -> int:
        return int(self._plan.payload[1])

    def _column(self, name: str) -> int:
        return int(self._table.columns[name][self._row])

    @property
    def name(self) -> str:
        """Name of the kernel in the image."""
        return str(self._table.launches[self._column("launch")].symbol)

    @property
    def hash(self) -> str:
        """Id of the variant, which identifies its machine code."""
        return self._table.variant_id(self._row)

    @property
    def n_regs(self) -> int:
        """Registers of a thread."""
        return self._column("registers")

    @property
    def n_spills(self) -> int:
        """Spilled registers of a thread."""
        return self._column("spill_bytes") // 4

    @property
    def n_max_threads(self) -> int:
        """Threads of a block at most."""
        return _core.device_attribute(self._plan.device, 1)

    @cached_property
    def metadata(self) -> Any:
        """Facts of the launch, as attributes: ``shared``, ``num_warps``, ``num_stages``, ``target`` and others."""
        launch = self._table.launches[self._column("launch")]
        facts: dict[str, Any] = dict(BUILT_WITH)
        facts |= {name: value for name, value in row_constexprs(self._table, self._row).items() if name in BUILT_WITH}
        target = self._bundle.images.file.index.target
        facts |= {
            "name": launch.symbol,
            "hash": self.hash,
            "shared": launch.shared_bytes,
            "num_warps": launch.num_warps,
            "num_ctas": launch.num_ctas,
            "warp_size": target.warp_size,
            "target": _Target(target.backend, self._bundle.arch, target.warp_size),
            "global_scratch_size": launch.global_scratch_bytes,
            "global_scratch_align": launch.global_scratch_align,
            "profile_scratch_size": launch.profile_scratch_bytes,
            "profile_scratch_align": launch.profile_scratch_align,
            "launch_cooperative_grid": launch.cooperative,
            "launch_pdl": launch.pdl,
            "cluster_dims": (launch.num_ctas, 1, 1),
            "tmem_size": None,
        }
        return namedtuple("KernelMetadata", sorted(facts))(**facts)  # noqa: PYI024 - the fields are data

    @cached_property
    def asm(self) -> Mapping[str, Any]:
        """The machine code under ``cubin``; other stages are not in bundles."""
        return _Assembly(self._bundle, self._table, self._row)

    @property
    def kernel(self) -> bytes:
        """The machine code."""
        code: bytes = self.asm["cubin"]
        return code

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        """Return a function that launches the variant's specialization; it takes all params in order, and ``stream=``."""
        constants = row_constexprs(self._table, self._row)
        params = self._kernel.arg_names

        def launch(*args: Any, stream: Any = None) -> None:
            # params of the bundle's kernel that are options come last
            values = dict(zip(params, args, strict=False)) | constants
            if stream is not None:
                values["stream"] = stream
            self._kernel.launch_bound(grid, values)

        return launch


class _Target:
    """As Triton's ``GPUTarget``, which may not be there."""

    def __init__(self, backend: str, arch: int, warp_size: int) -> None:
        self.backend = backend
        self.arch = arch
        self.warp_size = warp_size

    def __repr__(self) -> str:
        return f"GPUTarget(backend={self.backend!r}, arch={self.arch}, warp_size={self.warp_size})"


class _Assembly(Mapping[str, Any]):
    """The stages of a compiled kernel: a bundle has the last one."""

    def __init__(self, bundle: ArchBundle, table: KernelTable, row: int) -> None:
        self._bundle, self._table, self._row = bundle, table, row

    def __getitem__(self, stage: str) -> bytes:
        if stage != "cubin":
            raise KeyError(f"{stage}: bundles hold machine code alone; compile with Triton to see other stages")
        return self._bundle.images.file.image(self._table.kernel, self._table.columns["image"][self._row])

    def __iter__(self) -> Iterator[str]:
        return iter(("cubin",))

    def __len__(self) -> int:
        return 1
