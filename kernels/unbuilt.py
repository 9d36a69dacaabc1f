"""Kernels of the library that no bundle holds: Triton's JIT compiles them if ``NOJIT_MISS`` allows it."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, cast

from nojit.kernels.manifest_kernels import ManifestKernel, arch_for, blank_table, manifest_kernel_of, table_of
from nojit.runtime import _core
from nojit.runtime.base.frozen_record import Record
from nojit.runtime.call.bound_call import Facts, call_facts
from nojit.runtime.call.call_facts import CallFacts
from nojit.runtime.fallback.jit_configs import specialization_of
from nojit.runtime.fallback.jit_functions import UnavailableError, function_of
from nojit.runtime.first_call.arch_bundle import ArchBundle
from nojit.runtime.kernel import Kernel
from nojit.runtime.table.parts import MISSING, Param
from nojit.runtime.table.table import KernelTable

__all__ = ["Unbuilt", "unbuilt"]

_BUNDLE = "nojit-kernels"


class _Manifest(Record):
    """Stand-in for the bundles of a kernel that no bundle holds."""

    base: KernelTable

    def table(self, kernel: str) -> KernelTable:
        """Return a kernel table with the params only: no variants."""
        del kernel
        return self.base


class Unbuilt(Kernel):
    """A kernel that no bundle holds; every call is a miss, for Triton's JIT to compile."""

    is_unbuilt = True
    """Its configs are those of the manifest, not those of tuned tables; `library.is_built` asks."""

    def __init__(self, entry: ManifestKernel, params: tuple[Param, ...]) -> None:
        self._entry = entry
        self._base = blank_table(entry, params)
        self._base.know_param_types({param.name: () for param in params if not param.constexpr})
        self._tables: dict[Hashable, KernelTable] = {}
        super().__init__(str(entry.words["name"]), [cast("ArchBundle", _Manifest(self._base))])
        # no bundle serves any device
        self._bundles.bundles = ()

    def __repr__(self) -> str:
        return f"Unbuilt({self.name!r})"

    def fits(self, device: int | None = None) -> bool:
        """Return False: no bundle fits any device."""
        del device
        return False

    def _described(self, device: int, facts: Facts) -> tuple[str, KernelTable, CallFacts]:
        call = call_facts(facts, self._base, arch_for(self._entry, _core.device_capability(device)))
        kind = specialization_of(call)
        table = self._tables.get(kind)
        if table is None:
            table = self._tables[kind] = table_of(self._entry, self._base, call)
        return _BUNDLE, table, call


def unbuilt(name: str) -> Unbuilt:
    """Return a kernel whose calls Triton's JIT compiles.

    Raises:
        UnavailableError: no manifest has the kernel, or its function cannot be imported.
    """
    entry = manifest_kernel_of(name)
    if entry is None:
        raise UnavailableError("no manifest of the library lists it")
    params = tuple(
        Param(param.name, param.is_constexpr, _default(param)) for param in function_of(name, _BUNDLE).params
    )
    return Unbuilt(entry, params)


def _default(param: Any) -> Any:
    return getattr(param.default, "value", param.default) if param.has_default else MISSING
