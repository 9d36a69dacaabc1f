"""Reader of the tuning rules in manifests. Needs the build's dependencies."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from nojit.aot.manifest.matrix import read_value
from nojit.aot.manifest.reader import find_manifests, load_manifest
from nojit.aot.manifest.spec import KernelSpec
from nojit.aot.tune.select.rules import TuningRules

__all__ = ["read_rules"]


def read_rules(folder: Path) -> Mapping[str, TuningRules]:
    """Read the tuning rules of every kernel in a folder's manifests; return them by the kernel's name.

    Raises:
        ManifestError: a manifest is invalid, or the folder has none.
    """
    kernels = [(path, kernel) for path in find_manifests([folder]) for kernel in load_manifest(path).kernel]
    return {kernel.name: _rules(kernel, str(path)) for path, kernel in kernels}


def _rules(kernel: KernelSpec, where: str) -> TuningRules:
    configs = tuple(kernel.configs)
    if kernel.tuning is None:
        return TuningRules(configs=configs)
    alike = {
        axis: [[read_value(value, f"{where} {kernel.name}.tuning.alike.{axis}") for value in group] for group in groups]
        for axis, groups in kernel.tuning.alike.items()
    }
    tuning = kernel.tuning
    return TuningRules(alike, tuple(tuning.apart), tuning.bucket, tuple(tuning.names), tuple(tuning.terms), configs)
