"""The packages that recorded source comes from, with the versions and licences of those that are installed."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Mapping
from functools import cached_property
from typing import Final

__all__ = ["Distributions"]

_CLASSIFIER: Final = "License :: "
_LICENSE_CHARS_MAX: Final = 200


class Distributions:
    """The distributions of this process's modules; each is found once."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._tops: set[str] = set()

    def new_of(self, module: str) -> dict[str, str] | None:
        """Return ``name``, ``version`` and ``license`` of the distribution that holds a module; None if it was returned before.

        A module that no distribution holds, such as one beside the program, has the name of its top-level package, and nothing else.

        Args:
            module: name of a module whose source was recorded.
        """
        top = module.partition(".")[0]
        # nobody needs to be told of the program itself; one folder may hold modules of several distributions
        if top in self._tops or top == "__main__":
            return None
        names = self._names.get(top, [])
        if len(names) < 2:
            self._tops.add(top)
        name = next((each for each in names if len(names) == 1 or _holds(each, module)), "")
        if (name or top) in self._seen:
            return None
        self._seen.add(name or top)
        if not name:
            return {"name": top, "version": "", "license": ""}
        found = importlib.metadata.distribution(name)
        return {"name": name, "version": found.version, "license": _license(found)}

    @cached_property
    def _names(self) -> Mapping[str, list[str]]:
        """Names of distributions by top-level module, without repetitions."""
        found = importlib.metadata.packages_distributions()
        return {top: list(dict.fromkeys(names)) for top, names in found.items()}


def _holds(name: str, module: str) -> bool:
    """Return whether a distribution lists a module's file."""
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None:
        return False
    ends = {f"{module.replace('.', '/')}.py", f"{module.replace('.', '/')}/__init__.py"}
    return any(str(each) in ends for each in importlib.metadata.files(name) or ())


def _license(found: importlib.metadata.Distribution) -> str:
    """Return the licence that a distribution names: its expression, its short text, its classifiers, or its text's title."""
    metadata = found.metadata
    for field in ("License-Expression", "License"):
        stated = metadata.get_all(field) or [""]
        # some hold the whole text
        if 0 < len(stated[0]) <= _LICENSE_CHARS_MAX:
            return str(stated[0])
    named = [each for each in metadata.get_all("Classifier") or () if each.startswith(_CLASSIFIER)]
    if named:
        return "; ".join(each.rpartition(" :: ")[2] for each in named)
    title = (metadata.get_all("License") or [""])[0].strip().partition("\n")[0].strip()
    # some texts start with whose they are
    return "" if title.lower().startswith("copyright") else title[:_LICENSE_CHARS_MAX]
