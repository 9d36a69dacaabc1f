"""Words why a kernel can never take a call, with any variant. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from nojit.runtime.base.launch_options import BUILT_WITH
from nojit.runtime.base.suggestions import did_you_mean
from nojit.runtime.base.wording import shown
from nojit.runtime.call.call_facts import NONE, CallFacts, mismatch, pointee, untyped_leaves
from nojit.runtime.errors import ArgumentError
from nojit.runtime.table.table import KernelTable
from nojit.runtime.types.names import leaves
from nojit.runtime.values import spell

__all__ = ["check_names", "not_as_built", "refusal", "unexpected"]


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


def refusal(table: KernelTable, facts: CallFacts, code: str, name: str, fitting: Sequence[bool]) -> ArgumentError:
    """Make the error for a call that the kernel can never take.

    Args:
        table: the kernel's variants.
        facts: the call.
        code: what is wrong with it, as the engine says.
        name: of the param, the axis or the option that it is about.
        fitting: of each signature, whether it takes the arguments.
    """
    where = f"kernel {table.kernel}"
    if code == "kind":
        return ArgumentError(f"{name}: {_kind_fault(table, facts, name)}", where=where, argument=name)
    if code == "value":
        axis = next(axis for axis in table.axes if axis.name == name)
        what = f"expected a value for {name}, one of {', '.join(map(spell, axis.values))}"
        return ArgumentError(what, where=where, argument=name)
    if code == "untyped":
        path, kinds = _open_kinds(table, facts, name, fitting)
        what = f"{path}: expected a typed pointer, one of {', '.join(kinds)}; pass a tensor"
        return ArgumentError(what, got="an untyped address", where=where, argument=name)
    try:
        check_names(table, facts)
    except ArgumentError as error:
        return error
    return ArgumentError(unexpected(name, ()), where=where, argument=name)


def _kind_fault(table: KernelTable, facts: CallFacts, name: str) -> str:
    reasons = {kind: mismatch(kind, facts.arguments[name]) for kind in table.param_types()[name]}
    return "; ".join(dict.fromkeys(reason for kind, reason in reasons.items() if kind != NONE or len(reasons) == 1))


def _open_kinds(table: KernelTable, facts: CallFacts, name: str, fitting: Sequence[bool]) -> tuple[str, list[str]]:
    """Return the first address of an argument that may point to several types, and these."""
    place = table.runtime_params().index(name)
    left = {types[place] for types, fits in zip(table.signatures, fitting, strict=True) if fits}
    paths = untyped_leaves(name, facts.arguments[name])
    found = ((path, sorted({dict(leaves(kind, name))[path] for kind in left})) for path in paths)
    return next((path, kinds) for path, kinds in found if len(set(map(pointee, kinds))) > 1)
