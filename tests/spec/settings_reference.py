"""The generated part of docs/cache.md: what a build does about each setting of Triton."""

from __future__ import annotations

from nojit.aot.settings import KNOBS, VARIABLES, Role

__all__ = ["render_settings"]

_WORDS = {
    Role.REFUSED: "refused",
    Role.KEYED: "part of the key",
    Role.HASHED: "part of the key: what the file holds",
    Role.OWN: "overruled or covered",
    Role.WITHOUT_EFFECT: "no effect",
}


def render_settings() -> str:
    """Write a table of all settings, those first that matter most."""
    named = [(setting.variable or f"triton.knobs.{name}", setting) for name, setting in KNOBS.items()]
    named += list(VARIABLES.items())
    order = list(_WORDS)
    rows = sorted(named, key=lambda row: (order.index(row[1].role), row[0]))
    lines = [f"| `{name}` | {_WORDS[setting.role]} | {setting.why} |\n" for name, setting in rows]
    return "\n| setting | in a build | why |\n|---|---|---|\n" + "".join(lines) + "\n"
