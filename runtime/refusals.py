"""Refuse calls that no variant of a kernel could serve. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nojit.runtime.call import NONE, CallFacts, mismatch, pointee, slot_kind, untyped_leaves
from nojit.runtime.errors import ArgumentError, did_you_mean, shown
from nojit.runtime.options import BUILT_WITH
from nojit.runtime.table import KernelTable
from nojit.runtime.type_names import leaves

__all__ = ["check_kinds", "check_names", "check_untyped", "not_as_built", "unexpected"]


def unexpected(name: str, known: Sequence[str]) -> str:
    """Return the message for a name that a kernel lacks, with the most similar one that it has."""
    return f"unexpected argument {name!r}{did_you_mean(name, tuple(known))}"


def not_as_built(name: str, value: object) -> str:
    """Return the message for an option of Triton that was built with another value."""
    built = (
        f"expected {name}={shown(BUILT_WITH[name])}, as every variant was built, or {name} in the manifest's configs"
    )
    return f"{built} with {name} = {shown(value)} among them" if value is not None else built


def check_names(table: KernelTable, facts: CallFacts) -> None:
    """Check that a call passes every runtime param, and no name that the kernel lacks.

    Raises:
        ArgumentError: a param is missing, or a name is unknown.
    """
    runtime, where = table.runtime_params(), f"kernel {table.kernel}"
    if facts.arguments.keys() == {*runtime} and not facts.options and not facts.constexprs:
        return
    constexprs = tuple(param.name for param in table.params if param.constexpr)
    options = tuple(dict.fromkeys(name for config in table.configs for name, _ in config.options))
    derived = {item.name for item in table.derived}
    for given, known in ((facts.arguments, runtime), (facts.constexprs, constexprs), (facts.options, options)):
        for name in given:
            if name in derived:
                raise ArgumentError(f"{name} follows from the call; leave it out", where=where, argument=name)
            if name not in known:
                raise ArgumentError(unexpected(name, [*runtime, *constexprs, *options]), where=where, argument=name)
    for name in runtime:
        if name not in facts.arguments:
            raise ArgumentError(f"missing argument {name!r}", where=where, argument=name)


def check_kinds(table: KernelTable, facts: CallFacts, taken: Mapping[str, Sequence[str]]) -> None:
    """Check that each argument has a kind that some manifest could declare for the kernel.

    Args:
        table: the kernel's variants.
        facts: the call.
        taken: for each runtime param, the types that take its argument.

    Raises:
        ArgumentError: an argument has another kind.
    """
    types = table.param_types()
    for name, takers in taken.items():
        argument, kinds = facts.arguments[name], types[name]
        if takers or not kinds or argument.kind == "none" or argument.kind in map(slot_kind, kinds):
            continue
        reasons = {kind: mismatch(kind, argument) for kind in kinds}
        said = dict.fromkeys(reason for kind, reason in reasons.items() if kind != NONE or len(reasons) == 1)
        raise ArgumentError(f"{name}: {'; '.join(said)}", where=f"kernel {table.kernel}", argument=name)


def check_untyped(table: KernelTable, facts: CallFacts, fitting: Sequence[bool]) -> None:
    """Check that no address without an element type leaves the variant open.

    Args:
        table: the kernel's variants.
        facts: the call.
        fitting: for each signature, whether it takes the arguments.

    Raises:
        ArgumentError: the variant depends on the element type of an address.
    """
    for place, name in enumerate(table.runtime_params()):
        argument = facts.arguments[name]
        if argument.dtype or argument.kind not in ("pointer", "tuple"):
            continue
        left = [types for types, fits in zip(table.signatures, fitting, strict=True) if fits]
        for path in untyped_leaves(name, argument):
            kinds = sorted({dict(leaves(types[place], name))[path] for types in left})
            if len(set(map(pointee, kinds))) > 1:
                what = f"{path}: expected a typed pointer, one of {', '.join(kinds)}; pass a tensor"
                raise ArgumentError(what, got="an untyped address", where=f"kernel {table.kernel}", argument=name)
