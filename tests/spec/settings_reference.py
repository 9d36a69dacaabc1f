"""The generated part of docs/cache.md: how a build treats each setting of Triton."""

from __future__ import annotations

from nojit.aot.backends.settings import Role
from nojit.aot.compile.toolchain.triton_settings import all_knobs, all_variables

__all__ = ["render_settings"]

_WORDS = {
    Role.REFUSED: "refused",
    Role.KEYED: "part of the key",
    Role.HASHED: "part of the key: the contents of the file",
    Role.OWN: "overridden or covered",
    Role.WITHOUT_EFFECT: "no effect",
}


def render_settings() -> str:
    """Write a table of all settings, grouped by role and reason, the most important first."""
    named = [(setting.variable or f"triton.knobs.{name}", setting) for name, setting in all_knobs().items()]
    named += list(all_variables().items())
    order = list(_WORDS)
    alike: dict[tuple[int, str], list[str]] = {}
    for name, setting in sorted(named, key=lambda row: row[0]):
        alike.setdefault((order.index(setting.role), setting.why), []).append(f"`{name}`")
    lines = [
        f"| {', '.join(names)} | {_WORDS[order[role]]} | {why} |\n"
        for (role, why), names in sorted(alike.items(), key=lambda row: (row[0][0], row[1][0]))
    ]
    return "\n| setting | in a build | reason |\n|---|---|---|\n" + "".join(lines) + "\n"
