"""How a process is to be served: ``NOJIT_SERVE``, ``NOJIT_MISS`` and ``NOJIT_SERVE_PRELOAD``."""

from __future__ import annotations

import os
from collections.abc import Mapping

from nojit.runtime.base.environment import SERVE, SERVE_PRELOAD
from nojit.runtime.base.frozen_record import Record
from nojit.runtime.base.suggestions import did_you_mean
from nojit.runtime.base.wording import typed
from nojit.runtime.bundle.format import SUFFIX
from nojit.runtime.errors import ArgumentError, SettingError
from nojit.runtime.fallback.policy import POLICIES, policy_of

__all__ = ["Settings", "full_place", "settings_of"]


class Settings(Record):
    """The bundles to serve, and how."""

    paths: tuple[str, ...]
    """Bundle files, folders or names, the most important first."""
    miss: str
    """``error``, ``warn`` or ``jit``."""
    preload: bool
    """Whether to load every recorded variant before the first launch on a device."""

    @staticmethod
    def of(paths: object, miss: object, preload: object, *, where: str) -> Settings:
        """Check the arguments of a public function; None for `miss` and `preload` takes the variables.

        Args:
            paths: a path or several.
            miss: a policy.
            preload: whether to preload.
            where: name of the function, for errors.

        Raises:
            ArgumentError: an argument has a wrong type or value.
            FileNotFoundError: a path does not exist.
            SettingError: a variable has an invalid value.
        """
        several = paths if isinstance(paths, list | tuple) else (paths,)
        if not several or not all(isinstance(each, str | os.PathLike) for each in several):
            what = "expected the path of a bundle or of a folder with bundles, or a list of paths"
            raise ArgumentError(what, got=typed(paths), where=where, argument="bundles")
        if miss is not None and miss not in POLICIES:
            near = did_you_mean(miss, POLICIES) if isinstance(miss, str) else ""
            what = f"expected miss to be {', '.join(POLICIES[:-1])} or {POLICIES[-1]}"
            raise ArgumentError(what, got=f"{miss!r}{near}", where=where, argument="miss")
        return Settings(
            tuple(full_place(os.fsdecode(each)) for each in several),
            policy_of(os.environ) if miss is None else str(miss),
            _flag(os.environ) if preload is None else bool(preload),
        )


def full_place(place: str) -> str:
    """Return a bundle's path as an absolute one. A name of installed bundles stays: each process looks for them.

    Raises:
        FileNotFoundError: a path does not exist.
    """
    if os.path.exists(place):  # noqa: PTH110 - pathlib is slow to import, and machines that serve start many processes
        return os.path.abspath(place)  # noqa: PTH100 - as above
    if os.sep in place or place.endswith(SUFFIX):
        raise FileNotFoundError(f"expected a bundle or a folder with bundles, found nothing - at {place}")
    return place


def settings_of(environment: Mapping[str, str]) -> Settings | None:
    """Return the settings of an environment; None if it asks for no serving.

    Raises:
        SettingError: a variable has an invalid value.
    """
    places = environment.get(SERVE, "")
    if not places:
        return None
    paths = tuple(filter(None, places.split(os.pathsep)))
    if not paths:
        raise SettingError("expected bundles or folders, separated by colons", got=repr(places), where=SERVE)
    return Settings(paths, policy_of(environment), _flag(environment))


def _flag(environment: Mapping[str, str]) -> bool:
    given = environment.get(SERVE_PRELOAD, "0")
    if given not in ("0", "1", ""):
        raise SettingError("expected 0 or 1", got=repr(given), where=SERVE_PRELOAD)
    return given == "1"
