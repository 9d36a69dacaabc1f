"""Reader of a kernel's matrix in a manifest: its axes, their values, and the axes that stand for types. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from nojit.aot.manifest.function_names import check_name
from nojit.aot.manifest.mistakes import Mistakes
from nojit.aot.manifest.types import ELEMENTS, axes_in, dims_in
from nojit.runtime.base.suggestions import did_you_mean
from nojit.runtime.errors import BundleFormatError, ManifestError
from nojit.runtime.table.parts import Axis
from nojit.runtime.types.names import dtype_name
from nojit.runtime.values import DType, FunctionRef, Value, decode_value, encode_value, identity

if TYPE_CHECKING:
    from nojit.aot.manifest.spec import KernelSpec

__all__ = ["axes_of", "plain_value", "read_value", "typed_params"]


def axes_of(spec: KernelSpec, where: str) -> tuple[Axis, ...]:
    """Return the axes of the matrix in a kernel's manifest entry.

    Args:
        spec: the manifest's entry.
        where: manifest and kernel, for messages.

    Raises:
        ManifestError: an axis has an invalid value or the same value twice, or a name in braces is not an axis.
    """
    spellings = list(chain.from_iterable(typed_params(spec).values()))
    type_axes = {axis for spelling in spellings for axis in axes_in(spelling)}
    dim_axes = {axis for spelling in spellings for axis in dims_in(spelling)}
    mistakes = Mistakes()
    _check_named_axes(spec, type_axes | dim_axes, dim_axes, where, mistakes)
    axes = []
    for name, raw in spec.matrix.items():
        with mistakes.caught():
            values = _values_of(raw, f"{where}.matrix.{name}", types=name in type_axes, dims=name in dim_axes)
            strings = all(isinstance(value, str) for value in values)
            axes.append(Axis(name, name in type_axes | dim_axes and strings, values))
    mistakes.raise_found()
    return tuple(axes)


def _values_of(raw: Sequence[Any], where: str, *, types: bool, dims: bool) -> tuple[Value, ...]:
    values = tuple(read_value(item, f"{where}[{number}]") for number, item in enumerate(raw))
    if len({identity(value) for value in values}) != len(values):
        raise ManifestError("expected each value of an axis once", got=repr(raw), where=where)
    kinds = {type(value) for value in values}
    if types and kinds != {str}:
        raise ManifestError("expected strings on an axis that params use as a type", got=repr(raw), where=where)
    if dims and kinds not in ({str}, {int}):
        what = "expected ints (or strings, if the axis is not a constexpr) on an axis that params use as a block's dimension"
        raise ManifestError(what, got=repr(raw), where=where)
    return values


def _check_named_axes(spec: KernelSpec, named: set[str], dims: set[str], where: str, mistakes: Mistakes) -> None:
    """Add a mistake for each name in braces, inside a type, that is not an axis of the matrix.

    In the block of a tensor descriptor, the name of a constexpr that configs set is allowed as well.

    `spec`: the kernel's manifest entry; `named`: all names in braces; `dims`: those in blocks of descriptors; `where`:
    the entry's key path.
    """
    for name in sorted(named - spec.matrix.keys()):
        if name not in dims:
            near = did_you_mean(name, tuple(spec.matrix))
            mistakes.add(f"expected {{{name}}} to be an axis of the matrix{near}", at=f"{where}.params")
            continue
        for number, config in enumerate(spec.configs):
            if name not in config:
                near = did_you_mean(name, (*spec.matrix, *config))
                what = f"expected {{{name}}} to be an axis of the matrix, or a constexpr of every config"
                mistakes.add(what, got=f"none in configs[{number}]{near}", at=f"{where}.params")
                break


def typed_params(spec: KernelSpec) -> dict[str, tuple[str, ...]]:
    """Return the types that a manifest entry and its points give each param, as text from the manifest.

    `spec`: the kernel's manifest entry.
    """
    found: dict[str, tuple[str, ...]] = {name: (spelling,) for name, spelling in spec.params.items()}
    for name, spelling in chain.from_iterable(point.types.items() for point in spec.point):
        found[name] = (*found.get(name, ()), spelling)
    return found


def plain_value(value: Value) -> Any:
    """Return a constexpr as expressions see it: a dtype or function becomes its name, other values stay unchanged."""
    return value.name if isinstance(value, DType | FunctionRef) else value


def read_value(raw: Any, where: str) -> Value:
    """Return the constexpr that a value in a manifest stands for.

    `raw`: the value as TOML gives it.

    Raises:
        ManifestError: the value is no valid constexpr, or the bundle format cannot store it.
    """
    value = _read(raw, where)
    try:
        decode_value(encode_value(value), where)
    except BundleFormatError as error:
        # the limits of the format show at build time, not when the bundle is written
        raise ManifestError(error.what, got=error.got, where=where) from None
    return value


def _dtype_name(spelling: str, where: str) -> str:
    """Return Triton's full name of a dtype that a manifest abbreviates: `int32` for `i32`."""
    name = dtype_name(spelling)
    if name is None:
        near = did_you_mean(spelling, ELEMENTS)
        raise ManifestError("expected a Triton dtype, such as 'fp16'", got=f"{spelling!r}{near}", where=where)
    return name


def _read(raw: Any, where: str) -> Value:
    if isinstance(raw, dict) and len(raw) == 1:
        tag, body = next(iter(raw.items()))
        if tag == "dtype" and isinstance(body, str):
            return DType(_dtype_name(body, where))
        if tag == "function" and isinstance(body, str):
            check_name(body, where)
            return FunctionRef(body)
        if tag == "none" and body is True:
            return None
    if isinstance(raw, list):
        return tuple(_read(item, where) for item in raw)
    if isinstance(raw, int | float | bool | str):
        return raw
    raise ManifestError(
        "expected an int, float, bool, string, array, {dtype = ...}, {function = ...} or {none = true}",
        got=repr(raw),
        where=where,
    )
