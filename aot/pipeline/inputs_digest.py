"""Digest of all inputs of a bundle: equal inputs give equal bytes, so that a build leaves an up-to-date bundle alone.

Each fact is encoded by name. Text that Python writes (`repr`) would change with the name of a field, and hide fields.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import msgspec
from nojit.aot.compile.job_runner import Job
from nojit.aot.compile.resource_pruning import PRUNING
from nojit.aot.manifest.spec import TuningSpec
from nojit.aot.pack.bundle import PACKING
from nojit.aot.plan.plan import Plan, PlannedKernel
from nojit.aot.variants.variant import Variant
from nojit.runtime.base.strict_json import Json, canonical_json
from nojit.runtime.table.parts import Missing, config_json
from nojit.runtime.tuning.tuned_tables import TunedEntry, TunedTable
from nojit.runtime.values import Value, encode_value

__all__ = ["inputs_digest"]


def inputs_digest(plan: Plan, toolchain: Sequence[tuple[str, str]], jobs: Sequence[Job]) -> str:
    """Return a digest, in hex, of everything that determines the bytes of a plan's bundle.

    Args:
        plan: the plan. Its debug twin has the same inputs, so that `line_info` of variants does not count.
        toolchain: the tools, as (name, version or value); the toolchains of variants are among them.
        jobs: the compile jobs, one per variant, in the order of the plan.
    """
    facts: dict[str, Json] = {
        "packing": PACKING,
        "pruning": PRUNING if plan.tuning else 0,
        "name": plan.bundle.name,
        "version": plan.bundle.version,
        "arch": plan.arch,
        "toolchain": _pairs(toolchain),
        "kernels": [_kernel(kernel) for kernel in plan.kernels],
        "variants": [[job.key, _variant(job.variant)] for job in jobs],
        "attachments": [[name, hashlib.sha256(raw).hexdigest()] for name, raw in sorted(plan.attachments)],
    }
    return hashlib.sha256(canonical_json(facts)).hexdigest()


def _kernel(kernel: PlannedKernel) -> Json:
    return {
        "name": kernel.spec.name,
        "grid": [*kernel.spec.grid],
        "batch": [*kernel.spec.batch],
        "tuning": _tuning(kernel.spec.tuning),
        "params": [
            [param.name, param.constexpr, [] if isinstance(param.default, Missing) else [encode_value(param.default)]]
            for param in kernel.source.params
        ],
        "axes": [[axis.name, axis.is_type, _values(axis.values)] for axis in kernel.axes],
        "derived": [[derived.name, derived.expression] for derived in kernel.derived],
        "tuned": [_table(table) for table in kernel.tuned],
    }


def _tuning(tuning: TuningSpec | None) -> Json:
    """Spell all keys of a kernel's tuning as the text of JSON, since spaces hold floats."""
    return None if tuning is None else msgspec.json.encode(tuning, order="deterministic").decode()


def _variant(variant: Variant) -> Json:
    return {
        "kernel": variant.kernel,
        "arch": variant.arch,
        "axes": _named(variant.axes),
        "signature": _pairs(variant.signature),
        "constexprs": _named(variant.constexprs),
        "hints": [[path, hint] for path, hint in variant.hints],
        "options": _named(variant.options),
        "config": config_json(variant.config),
        "config_number": variant.config_number,
        "derived": _named(variant.derived),
    }


def _table(table: TunedTable) -> Json:
    device = table.device
    return {
        "device": [device.name, device.arch, device.multiprocessors, device.memory_bytes],
        "names": [*table.names],
        "configs": [[_named(config.settings), config.requires] for config in table.configs],
        "entries": [_entry(entry) for entry in table.entries],
    }


def _entry(entry: TunedEntry) -> Json:
    return {
        "where": [[axis, _values(values)] for axis, values in entry.where],
        "rows": [[[*row.at], [*row.use], [us.hex() for us in row.us]] for row in entry.rows],
        "costs": [[cost.config, cost.ps] for cost in entry.costs],
    }


def _pairs(pairs: Iterable[tuple[str, str]]) -> Json:
    return [[name, text] for name, text in pairs]


def _named(values: Iterable[tuple[str, Value]]) -> Json:
    return [[name, encode_value(value)] for name, value in values]


def _values(values: Iterable[Value]) -> Json:
    return [encode_value(value) for value in values]
