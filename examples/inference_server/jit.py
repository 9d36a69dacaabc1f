"""The shipped kernels through Triton's JIT, as a server without bundles would run them, for comparison with nojit.

`JitKernels` is a provider for `nojit.kernels.library.override`. It looks up a kernel in its manifest, takes the first config that
fits the call and the arch, and launches ``function[grid](...)``, so that Triton compiles new specializations. It ignores tuned
tables, and ints have the width that Triton gives them, which suffices for the sizes of this example.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any

from nojit.kernels.calls.tensor_maps import Described
from nojit.runtime.errors import KernelNotFoundError, NoMatchingVariantError
from nojit.runtime.expr import expression as expr
from nojit.runtime.types.names import descriptor_parts
from nojit.runtime.values import FunctionRef
from torch import Tensor

TYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "float64": "fp64"}
"""Triton's names of torch's floats; ints are ``i32`` and so on."""
RULES = {"archs", "when", "requires"}
ALIGNED_BYTES = 256
"""The largest alignment that any rule tests, in bytes."""


class JitKernels:
    """Kernels of folders of manifests, for a device of compute capability ``arch / 10``.

    Sources that are files beside their manifest are imported by name, so their folders must be in `sys.path`.
    """

    def __init__(self, folders: Iterable[Path], arch: int) -> None:
        paths = [path for folder in folders for path in sorted(folder.glob("*.toml"))]
        manifests = [tomllib.loads(path.read_text(encoding="utf-8")) for path in paths]
        self._specs = {
            spec["name"]: (spec, manifest["bundle"]) for manifest in manifests for spec in manifest["kernel"]
        }
        self._arch = arch

    def __call__(self, name: str) -> JitKernel:
        """Return a kernel.

        Raises:
            KernelNotFoundError: no manifest lists the kernel.
        """
        if name not in self._specs:
            raise KernelNotFoundError(f"expected one of {len(self._specs)} kernels", got=repr(name))
        spec, bundle = self._specs[name]
        archs = [int(arch.removeprefix("sm_")) for arch in bundle["archs"]]
        return JitKernel(spec, max((arch for arch in archs if arch <= self._arch), default=min(archs)))


@dataclass(frozen=True)
class Chosen:
    """Settings with which calls of one specialization are launched."""

    grid: tuple[int, ...]
    types: dict[str, str]
    """Type of each param."""
    constexprs: dict[str, Any]
    """Constexprs and options."""


def triton_arguments(args: tuple[Any, ...], chosen: Chosen) -> list[Any]:
    """Return arguments in Triton's form."""
    kinds = chosen.types.values()
    return [_described(arg, kind) if isinstance(arg, Described) else arg for arg, kind in zip(args, kinds, strict=True)]


class JitKernel:
    """A kernel of a manifest; it caches the settings of calls by everything that determines them."""

    def __init__(self, spec: Mapping[str, Any], arch: int) -> None:
        self._spec, self._arch = spec, arch
        module, _, name = spec["source"].partition(":")
        function: Any = getattr(import_module(module.removesuffix(".py")), name)
        self._params: dict[str, str] = {
            name: spec["params"][name].replace(" ", "") for name in function.arg_names if name in spec["params"]
        }
        hinted = {name for hints in spec.get("hints", ()) for name in hints}
        # kernels rely on this: only hints of their manifests become constants
        plain = [name for name, kind in self._params.items() if kind[0] == "i" and name not in hinted]
        self._function: Any = type(function)(function.fn, do_not_specialize=plain)
        matrix = {axis: [_value(value) for value in values] for axis, values in spec.get("matrix", {}).items()}
        used = {axis for axis in matrix for kind in self._params.values() if f"{{{axis}}}" in kind}
        self._matrix = {axis: values for axis, values in matrix.items() if axis in used}
        self._derived = {
            name: expr.parse(rule if isinstance(rule, str) else rule["expr"])
            for name, rule in spec.get("derived", {}).items()
        }
        # numbers that no rule reads, such as seeds, only determine the widths of their types
        read = set(re.findall(r"\w+", str([spec["grid"], spec["configs"], spec.get("derived"), spec.get("exclude")])))
        self._read = tuple(name in read for name in self._params)
        self._known: dict[Any, Chosen] = {}

    def __call__(self, *args: Any, **constexprs: Any) -> None:
        """Launch with the grid of the manifest; operators pass most arguments by name."""
        args = (*args, *(constexprs.pop(name) for name in list(self._params)[len(args) :]))
        key = (tuple(map(_fact, args, self._read)), *constexprs.items())
        chosen = self._known.get(key)
        if chosen is None:
            chosen = self._known[key] = self._choose(args, constexprs)
        self._function[chosen.grid](*triton_arguments(args, chosen), **chosen.constexprs)

    def __getitem__(self, grid: Any) -> Any:
        """Refuse a grid: the operators of this example use the manifest's."""
        raise NotImplementedError("expected a launch over the manifest's own grid")

    def _choose(self, args: tuple[Any, ...], constexprs: Mapping[str, Any]) -> Chosen:
        seen = {name: _seen(arg) for name, arg in zip(self._params, args, strict=True)}
        for axes, config in product(self._axes(args, constexprs), self._spec["configs"]):
            names = {"arch": self._arch, **seen, **_spelled({**axes, **constexprs, **config})}
            if not self._serves(config, constexprs, names):
                continue
            derived = {name: rule.evaluate(names) for name, rule in self._derived.items()}
            rules = [rule["when"] for rule in self._spec.get("exclude", ())]
            if any(expr.parse(rule).evaluate(names | derived) for rule in rules):
                continue
            grid = [int(str(expr.parse(side).evaluate(names | derived))) for side in self._spec["grid"]]
            types = {
                name: kind.format(**_spelled({**axes, **constexprs, **config})) for name, kind in self._params.items()
            }
            settings = {name: value for name, value in config.items() if name not in RULES}
            given = {name: _function(value) for name, value in constexprs.items()}
            return Chosen(tuple(grid), types, {**given, **settings, **derived})
        raise NoMatchingVariantError(
            f"expected a config of {self._spec['name']} that fits",
            got=f"none for sm_{self._arch} with {dict(constexprs)}",
        )

    def _axes(self, args: tuple[Any, ...], constexprs: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """List the values of type axes with which the types take the arguments."""
        open_axes = {axis: values for axis, values in self._matrix.items() if axis not in constexprs}
        for values in product(*open_axes.values()):
            axes = dict(zip(open_axes, values, strict=True))
            known = _Fill(_spelled({**axes, **constexprs}))
            if all(_takes(kind.format_map(known), arg) for kind, arg in zip(self._params.values(), args, strict=True)):
                yield axes

    def _serves(self, config: Mapping[str, Any], constexprs: Mapping[str, Any], names: Mapping[str, Any]) -> bool:
        if f"sm_{self._arch}" not in config.get("archs", (f"sm_{self._arch}",)):
            return False
        if any(name in config and config[name] != value for name, value in constexprs.items()):
            return False
        return all(expr.parse(config.get(rule, "true")).evaluate(names) is True for rule in ("when", "requires"))


class _Fill(dict[str, Any]):
    """Mapping that leaves names open that a config sets."""

    def __missing__(self, name: str) -> str:
        return f"{{{name}}}"


def _value(value: Any) -> Any:
    """Return a value of an axis in the form that a call passes."""
    if not isinstance(value, dict):
        return value
    return FunctionRef(value["function"]) if "function" in value else None


def _spelled(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values in the form of expressions."""
    return {
        name: value.name if isinstance(value, FunctionRef) else value
        for name, value in values.items()
        if name not in RULES
    }


def _function(value: Any) -> Any:
    if not isinstance(value, FunctionRef):
        return value
    module, _, name = value.name.partition(":")
    return getattr(import_module(module), name)


def _fact(arg: Any, is_read: bool) -> Any:
    """Return the property of an argument that determines the launch; `is_read` tells whether a rule reads it."""
    base = arg.base if isinstance(arg, Described) else arg
    if isinstance(base, Tensor):
        return base.dtype, base.data_ptr() % ALIGNED_BYTES
    if isinstance(arg, float):
        return float
    return type(arg), arg if is_read or not isinstance(arg, int) else _takes("i32", arg)


def _seen(arg: Any) -> Any:
    """Return an argument in the form of expressions."""
    base = arg.base if isinstance(arg, Described) else arg
    if isinstance(base, Tensor):
        return expr.Pointer(base.data_ptr())
    return arg


def _takes(kind: str, arg: Any) -> bool:
    """Return whether a param of a type takes an argument."""
    if arg is None:
        return kind.endswith("?")
    base = arg.base if isinstance(arg, Described) else arg
    if isinstance(base, Tensor):
        name = str(base.dtype).removeprefix("torch.")
        element = TYPES.get(name, name.replace("uint", "u").replace("int", "i"))
        return kind.removesuffix("?") == f"*{element}" or kind.startswith(f"tensordesc<{element}[")
    if isinstance(arg, bool) or not isinstance(arg, int):
        return kind == "fp32" and isinstance(arg, float)
    return kind[0] == "i" and kind[1:].isdigit() and -(1 << int(kind[1:]) - 1) <= arg < 1 << int(kind[1:]) - 1


def _described(arg: Described, kind: str) -> Any:
    """Describe the same tensor to Triton, with the block of its type and the default layout; kernels over tensor maps are Gluon's."""
    from triton.experimental.gluon.language import NVMMASharedLayout
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor
    from triton.language.core import dtype

    element, block = descriptor_parts(kind)
    layout = NVMMASharedLayout.get_default_for(list(block), dtype(element))
    return TensorDescriptor(arg.base, list(arg.shape), list(arg.strides), list(block), layout)
