"""What installed distributions say of their bundles: their entry points, read without `importlib.metadata`.

That module takes 30 ms to import, which is most of what loading bundles by their name would cost. It is read here what the
specification "Entry points" of packaging says of installed projects: ``entry_points.txt`` in each ``.dist-info`` or ``.egg-info``
folder on the path, the first of several distributions of one name counting.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator

from nojit.runtime.record import Record

__all__ = ["ENTRY_POINTS", "Provider", "normalized", "providers"]

# each entry point names a package whose folder holds bundles, and is called as programs ask for them
ENTRY_POINTS = "nojit.bundles"
_HEADER = f"[{ENTRY_POINTS}]"


class Provider(Record):
    """One entry point."""

    name: str
    """What programs ask for."""
    package: str
    """Whose folder holds the bundles."""
    distribution: str
    """Whose entry point it is."""
    place: str
    """The folder of the path that the distribution is installed in."""


def normalized(name: str) -> str:
    """Spell a name as it is compared: without case, ``-``, ``_`` and ``.`` being one."""
    return re.sub(r"[-_.]+", "-", name).lower()


def providers(path: Iterable[str] | None = None) -> list[Provider]:
    """List the entry points of the distributions on a path, by name, distribution and package.

    Args:
        path: folders; ``sys.path`` if None. What is no folder, or cannot be read, holds none.
    """
    seen: set[str] = set()
    found: list[Provider] = []
    # not by pathlib: to import it takes longer than to look through a folder
    for place in dict.fromkeys(map(os.path.abspath, sys.path if path is None else path)):
        for folder in _listed(place):
            project = normalized(folder.rpartition(".")[0].partition("-")[0])
            # what an earlier folder has of a project hides what a later one has
            if project not in seen:
                seen.add(project)
                found += _entries(place, folder)
    return sorted(found, key=lambda one: (normalized(one.name), normalized(one.distribution), one.package))


def _listed(place: str) -> list[str]:
    try:
        names = os.listdir(place)  # noqa: PTH208
    except OSError:
        return []
    # what pip renamed before it was interrupted is no distribution
    return sorted(name for name in names if name.endswith((".dist-info", ".egg-info")) and not name.startswith("~"))


def _entries(place: str, folder: str) -> Iterator[Provider]:
    text = _read(os.path.join(place, folder, "entry_points.txt"))  # noqa: PTH118
    if _HEADER not in text:
        return
    distribution = _distribution(place, folder)
    inside = False
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            inside = line == _HEADER
        elif inside and line and not line.startswith("#"):
            name, _, value = line.partition("=")
            # an object in the package, and extras, may be named behind it
            package = re.split(r"[:\[]", value)[0].strip()
            yield Provider(name.strip(), package, distribution, place)


def _distribution(place: str, folder: str) -> str:
    """Read a distribution's name as it spells it; its folder's name has lost that."""
    for file in ("METADATA", "PKG-INFO"):
        head = _read(os.path.join(place, folder, file)).partition("\n\n")[0]  # noqa: PTH118
        named = re.search(r"^Name:[ \t]*(\S+)", head, re.MULTILINE)
        if named is not None:
            return named[1]
    return folder.rpartition(".")[0].partition("-")[0]


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            return file.read()
    except OSError:
        return ""
