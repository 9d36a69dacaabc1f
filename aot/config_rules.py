"""What a config of a manifest may hold beside constexprs: checked rules and compiler options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from nojit.aot.manifest_text import ManifestText
from nojit.aot.options import OPTIONS
from nojit.runtime.errors import ManifestError, did_you_mean

__all__ = ["CONFIG_RULES", "check_config", "check_options", "check_rules", "constexprs_in"]


def _are_words(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, str) for item in value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


_RULE_KINDS: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    ("archs", _are_words, "a list of archs"),
    ("when", _is_text, "an expression"),
    ("requires", _is_text, "an expression"),
)
CONFIG_RULES = tuple(key for key, _, _ in _RULE_KINDS)


def constexprs_in(config: Mapping[str, Any]) -> tuple[str, ...]:
    """List the keys of a config that are constexprs of the kernel, neither options nor rules."""
    return tuple(key for key in config if key not in OPTIONS and key not in CONFIG_RULES)


def check_options(options: Mapping[str, Any], place: str, source: ManifestText) -> None:
    """Refuse a table of options that holds a stranger, or a value that its option cannot take.

    Raises:
        ManifestError: it does.
    """
    for name, value in options.items():
        where = source.where(f"{place}.{name}")
        if name not in OPTIONS:
            near = did_you_mean(name, tuple(OPTIONS))
            raise ManifestError(f"expected an option of {', '.join(OPTIONS)}", got=f"{name!r}{near}", where=where)
        OPTIONS[name].check(value, where)


def check_config(config: Mapping[str, Any], place: str, source: ManifestText) -> None:
    """Refuse a config with an option or a rule of the wrong kind.

    Raises:
        ManifestError: it has one.
    """
    for key, value in config.items():
        if key in OPTIONS:
            OPTIONS[key].check(value, source.where(f"{place}.{key}"))
    check_rules(config, place, source)


def check_rules(config: Mapping[str, Any], place: str, source: ManifestText) -> None:
    """Refuse a rule of the wrong kind.

    Raises:
        ManifestError: there is one.
    """
    for key, fits, what in _RULE_KINDS:
        if key in config and not fits(config[key]):
            raise ManifestError(f"expected {what}", got=repr(config[key]), where=source.where(f"{place}.{key}"))
