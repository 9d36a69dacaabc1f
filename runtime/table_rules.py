"""Rules between the parts of a variant table: every name it uses is one that it declares, and declares once."""

from __future__ import annotations

from collections.abc import Iterable

from nojit.runtime.format import GLOBAL_SCRATCH, PROFILE_SCRATCH
from nojit.runtime.strict import refuse
from nojit.runtime.table import KernelTable, Missing

__all__ = ["check_names"]

_SCRATCH = {GLOBAL_SCRATCH, PROFILE_SCRATCH}


def check_names(table: KernelTable, where: str) -> None:
    """Check every name in a table.

    Raises:
        BundleFormatError: a name that is there twice (rule ``duplicate``), that the kernel does not have, or that is
            missing (rule ``param``).
    """
    _each_once((param.name for param in table.params), "param", where)
    _each_once((axis.name for axis in table.axes), "axis", where)
    for config in table.configs:
        _each_once((name for name, _ in config.options), "option of a config", where)
    for hints in table.hint_sets:
        _each_once((name for name, _ in hints), "hinted param", where)
    _check_constexprs(table, where)
    runtime = set(table.runtime_params())
    hinted = {name for hints in table.hint_sets for name, _ in hints}
    # launches share the layouts of their table: by identity, since to hash them takes longer than all else here
    layouts = {id(launch.layout): launch.layout for launch in table.launches}
    sources = {slot.source for layout in layouts.values() for slot in layout} - _SCRATCH
    if strangers := (hinted | sources) - runtime:
        raise refuse("param", "expected hints and layouts of this kernel's params", got=sorted(strangers), where=where)


def _check_constexprs(table: KernelTable, where: str) -> None:
    """Check that each constexpr gets one value, from the meaning, the config, an expression or its default."""
    known = {param.name for param in table.params if param.constexpr}
    defaulted = {param.name for param in table.params if not isinstance(param.default, Missing)}
    fixed = [axis.name for axis in table.axes if not axis.is_type] + [derived.name for derived in table.derived]
    for names in {tuple(name for name, _ in config.constexprs) for config in table.configs} or {()}:
        valued = (*fixed, *names)
        _each_once(valued, "valued constexpr", where)
        if strangers := set(valued) - known:
            what = "expected axes, configs and derived values of this kernel's constexprs"
            raise refuse("param", what, got=sorted(strangers), where=where)
        if missing := known - defaulted - set(valued):
            raise refuse("param", "expected a value for each constexpr", got=f"none for {sorted(missing)}", where=where)


def _each_once(names: Iterable[str], what: str, where: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise refuse("duplicate", f"expected each {what} once", got=repr(name), where=where)
        seen.add(name)
