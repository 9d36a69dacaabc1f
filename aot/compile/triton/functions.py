"""Look-up of functions of kernel sources: what a place or a constexpr names, as Triton takes it."""

from __future__ import annotations

import dataclasses
from functools import cache
from types import ModuleType
from typing import Any

from nojit.aot.compile.sources.source_import import import_source, recorded_closure
from nojit.aot.compile.triton import closures
from nojit.aot.compile.triton.simulated_gpu import target_answers
from nojit.aot.manifest.function_names import find_named
from nojit.aot.plan.function_facts import SourcePlace
from nojit.runtime.errors import ManifestError
from nojit.runtime.values import LAYOUTS, DType, FunctionRef, Value
from triton.language.core import dtype
from triton.runtime.jit import JITFunction

__all__ = ["find", "function_place", "named", "rebuilt", "referred", "to_triton"]


def _imported(place: SourcePlace) -> ModuleType:
    try:
        return import_source(place)
    except ManifestError as error:
        error.got += target_answers()
        raise


# unbounded: the digests are keyed by id(), and this cache keeps the functions alive
@cache
def named(place: SourcePlace) -> Any:
    """Return the object that a manifest entry names: a function, with its decorators around it.

    `place`: where the kernel's source is.
    """
    if place.recorded:
        return rebuilt(place).functions()[0]
    module = _imported(place)
    try:
        return find_named(module, place.spelling, place.where)
    except ManifestError as error:
        error.got += target_answers()
        raise


@cache
def rebuilt(place: SourcePlace) -> closures.Rebuilt:
    """Return the definitions of a recorded source closure, made again.

    `place`: where the kernel's source is.
    """
    return closures.Rebuilt(recorded_closure(place), place.where)


@cache
def find(place: SourcePlace) -> JITFunction[Any]:
    """Return the ``@triton.jit`` function at a place, without the decorators around it.

    `place`: where the kernel's source is.
    """
    wrapped = found = named(place)
    # autotuners and heuristics wrap the function that they decorate
    while not isinstance(found, JITFunction) and hasattr(found, "fn"):
        found = found.fn
    if not isinstance(found, JITFunction):
        got = f"{type(wrapped).__name__} {place.spelling}{target_answers()}"
        raise ManifestError("expected a @triton.jit function", got=got, where=place.where)
    return found


def to_triton(value: Value, place: SourcePlace) -> Any:
    """Return the value of a constexpr as Triton takes it.

    `place`: where the kernel's source is.
    """
    if isinstance(value, DType):
        return dtype(value.name)
    if isinstance(value, FunctionRef):
        return referred(value, place)
    if isinstance(value, tuple):
        return tuple(to_triton(item, place) for item in value)
    return value


def referred(value: FunctionRef, place: SourcePlace) -> Any:
    """Return the function, layout or, for a recorded kernel, member of an enum that a constexpr's value names.

    `place`: where the kernel's source is.
    """
    if value.name.startswith(LAYOUTS):
        return closures.layout_of(value.name, place.where)
    if place.recorded and value.name not in dict(place.functions):
        # described before, so that its enums are made
        named(place)
        return rebuilt(place).member(value.name)
    return find(function_place(value, place))


def function_place(function: FunctionRef, place: SourcePlace) -> SourcePlace:
    """Return the place of a function that a constexpr of the kernel at `place` names."""
    if not place.recorded:
        return dataclasses.replace(place, spelling=function.name)
    spelling = dict(place.functions).get(function.name)
    if spelling is None:
        what = f"expected the recording to hold the function {function.name}: record again"
        raise ManifestError(what, where=place.where)
    return dataclasses.replace(place, spelling=spelling)
