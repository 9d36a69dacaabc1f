"""The policy ``NOJIT_MISS`` for calls without a matching variant.

===== ================================================================================================
error the call raises; the default
warn  Triton's JIT runs the call; a `MissWarning` reports it once for each kernel and specialization
jit   Triton's JIT runs the call
===== ================================================================================================

A process reads the policy at its first miss, and keeps it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from typing import Final

from nojit.runtime.base.environment import MISS
from nojit.runtime.base.suggestions import did_you_mean
from nojit.runtime.errors import SettingError

__all__ = ["POLICIES", "MissWarning", "policy", "policy_of"]

POLICIES: Final = ("error", "warn", "jit")


class MissWarning(UserWarning):
    """Warning that no variant matches a call, and that Triton's JIT ran it."""


@cache
def policy() -> str:
    """Return the policy of this process.

    Raises:
        SettingError: ``NOJIT_MISS`` has an invalid value.
    """
    return policy_of(os.environ)


def policy_of(environment: Mapping[str, str]) -> str:
    """Return the policy of an environment.

    Raises:
        SettingError: ``NOJIT_MISS`` has an invalid value.
    """
    named = environment.get(MISS, POLICIES[0])
    if named not in POLICIES:
        what = f"expected {', '.join(POLICIES[:-1])} or {POLICIES[-1]}"
        raise SettingError(what, got=f"{named!r}{did_you_mean(named, POLICIES)}", where=MISS)
    return named
