"""Checks of a config's rules (the keys `archs`, `when` and `requires`) and compiler options in a manifest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from nojit.aot.manifest.mistakes import Mistakes, shorten
from nojit.aot.manifest.options import OPTIONS
from nojit.aot.manifest.text import spell_key
from nojit.runtime.base.launch_options import TUNABLE
from nojit.runtime.base.suggestions import did_you_mean

if TYPE_CHECKING:
    from nojit.aot.manifest.spec import KernelSpec

__all__ = ["CONFIG_RULES", "check_config", "check_options", "check_rules", "constexprs_in", "told_options"]


def _are_strings(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, str) for item in value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


_RULE_KINDS: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    ("archs", _are_strings, "a list of archs"),
    ("when", _is_text, "an expression"),
    ("requires", _is_text, "an expression"),
)
CONFIG_RULES = tuple(key for key, _, _ in _RULE_KINDS)


def constexprs_in(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the constexprs that a config sets, without its compiler options and its rules."""
    return tuple(key for key in config if key not in OPTIONS and key not in CONFIG_RULES)


def told_options(spec: KernelSpec) -> tuple[str, ...]:
    """Return the names of the compiler options that distinguish the configs of a kernel and that a call can pass.

    These are the tunable options, plus any other option that the manifest entry or one of its configs sets.
    `extern_libs` never counts, since its paths belong to the build machine.

    `spec`: the kernel's manifest entry.
    """
    named = {*spec.options, *[name for raw in spec.configs for name in raw]}
    # not extern_libs: its paths belong to the build machine
    return (*TUNABLE, *[name for name in OPTIONS if name in named and name not in (*TUNABLE, "extern_libs")])


def check_options(options: Mapping[str, Any], place: str, mistakes: Mistakes) -> None:
    """Add a mistake for each unknown compiler option in a table, and for each value that its option does not allow.

    `place`: key path in the manifest, for messages.
    """
    for name, value in options.items():
        if name not in OPTIONS:
            near = did_you_mean(name, tuple(OPTIONS))
            what = f"expected an option of {', '.join(OPTIONS)}"
            mistakes.add(what, got=f"{name!r}{near}", at=place + spell_key(name))
            continue
        with mistakes.caught():
            OPTIONS[name].check(value, f"{place}.{name}")


def check_config(config: Mapping[str, Any], place: str, mistakes: Mistakes) -> None:
    """Add a mistake for each compiler option and each rule of a config that has the wrong type.

    `place`: key path in the manifest, for messages.
    """
    for key, value in config.items():
        if key in OPTIONS:
            with mistakes.caught():
                OPTIONS[key].check(value, f"{place}.{key}")
    check_rules(config, place, mistakes)


def check_rules(config: Mapping[str, Any], place: str, mistakes: Mistakes) -> None:
    """Add a mistake for each rule (`archs`, `when`, `requires`) of a config or tuning space that has the wrong type.

    `place`: key path in the manifest, for messages.
    """
    for key, fits, what in _RULE_KINDS:
        if key in config and not fits(config[key]):
            mistakes.add(f"expected {what}", got=shorten(config[key]), at=f"{place}.{key}")
