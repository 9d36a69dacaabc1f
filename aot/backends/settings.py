"""How a build treats a setting of Triton: refuses it, puts it into keys, or ignores it. For tables of settings. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

__all__ = ["Role", "Setting", "hashed", "keyed", "own", "refused", "without_effect"]


class Role(Enum):
    """How a build treats a setting: whether it may be set, and whether it changes the keys of variants."""

    REFUSED = "refused"
    """The setting must not be set."""
    KEYED = "keyed"
    """Its value is part of each variant's key, and shown with the toolchain."""
    HASHED = "hashed"
    """Its value and the content of the files that it names are part of each variant's key."""
    OWN = "own"
    """The build sets it itself, or the toolchain's digests cover it."""
    WITHOUT_EFFECT = "without effect"
    """The setting cannot change an image."""


@dataclass(frozen=True, slots=True)
class Setting:
    """How a build treats one setting, and the reason, `why`."""

    role: Role
    why: str
    variable: str = ""
    """Environment variable of a knob; empty if only code sets it, and for a variable without a knob."""


def keyed(why: str, variable: str = "") -> Setting:
    """Return a setting whose value is part of each variant's key.

    `why`: the reason.
    """
    return Setting(Role.KEYED, why, variable)


def hashed(why: str, variable: str = "") -> Setting:
    """Return a setting whose files are part of each variant's key.

    `why`: the reason.
    """
    return Setting(Role.HASHED, why, variable)


def refused(why: str, variable: str = "") -> Setting:
    """Return a setting that a build refuses.

    `why`: the reason; `variable`: environment variable of a knob, or empty if it has none.
    """
    return Setting(Role.REFUSED, why, variable)


def own(why: str, variable: str = "") -> Setting:
    """Return a setting that the build sets itself or covers by a digest.

    `why`: the reason; `variable`: environment variable of a knob, or empty if it has none.
    """
    return Setting(Role.OWN, why, variable)


def without_effect(why: str, variable: str = "") -> Setting:
    """Return a setting that cannot change an image.

    `why`: the reason; `variable`: environment variable of a knob, or empty if it has none.
    """
    return Setting(Role.WITHOUT_EFFECT, why, variable)
