"""Versions of bundles: which of two is newer, and which bundles of a folder a newer one supersedes. Pure."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from nojit.runtime.discovery.installed import normalized

if TYPE_CHECKING:
    from nojit.runtime.bundle.file import BundleFile

__all__ = ["BundleVersion", "newer_lies_beside", "superseded", "version_key"]

Key: TypeAlias = tuple[object, ...]

# PEP 440, without spellings that a bundle's version cannot have
_VERSION: Final = re.compile(
    r"(?:(?P<epoch>\d+)!)?(?P<release>\d+(?:\.\d+)*)"
    r"(?:[._]?(?P<pre>alpha|a|beta|b|preview|pre|c|rc)[._]?(?P<pre_number>\d*))?"
    r"(?:[._]?(?P<post>post|rev|r)[._]?(?P<post_number>\d*))?"
    r"(?:[._]?(?P<dev>dev)[._]?(?P<dev_number>\d*))?"
    r"(?:\+(?P<local>[a-z0-9]+(?:[._][a-z0-9]+)*))?",
    re.IGNORECASE | re.ASCII,
)
_WORD: Final = re.compile(r"\d+|[^\d.]+", re.ASCII)
_STAGES: Final = {"a": 0, "alpha": 0, "b": 1, "beta": 1, "c": 2, "rc": 2, "pre": 2, "preview": 2}
_FIRST: Final[Key] = (-1,)
_LAST: Final[Key] = (1,)
_ZERO: Final[Key] = (0, "")


class BundleVersion(NamedTuple):
    """Path, name, version and arch of a bundle file."""

    path: str
    name: str
    version: str
    image_arch: str

    @staticmethod
    def of(bundle: BundleFile) -> BundleVersion:
        """Return the version that a bundle file holds."""
        return BundleVersion(bundle.path, bundle.index.name, bundle.index.version, bundle.index.target.image_arch)


def superseded(releases: Iterable[BundleVersion]) -> dict[str, str]:
    """Return the path of each bundle with a newer version of its name and image arch in its folder, and the path of the newest.

    Two bundles of one version supersede neither.
    """
    newest: dict[tuple[str, str, str], BundleVersion] = {}
    groups: dict[tuple[str, str, str], list[BundleVersion]] = {}
    for release in releases:
        # not pathlib: importing it would take most of the time of opening a bundle
        key = (os.path.dirname(release.path), normalized(release.name), release.image_arch)  # noqa: PTH120
        groups.setdefault(key, []).append(release)
        best = newest.setdefault(key, release)
        if version_key(release.version) > version_key(best.version):
            newest[key] = release
    return {
        release.path: newest[key].path
        for key, group in groups.items()
        for release in group
        if version_key(release.version) < version_key(newest[key].version)
    }


def newer_lies_beside(newer: str) -> str:
    """Return the reason for skipping a superseded bundle, as text."""
    folder, name = os.path.split(newer)
    return f"{name}, a newer version, lies beside it; nojit clean {folder or '.'} deletes the older"


def version_key(version: str) -> Key:
    """Return the sort key of a version: as in PEP 440; other versions come first, in order of the numbers in them."""
    match = _VERSION.fullmatch(version)
    if match is None:
        return ((-1,), tuple(map(_part, _WORD.findall(version))))
    release = tuple(map(_number, match["release"].split(".")))
    while len(release) > 1 and release[-1] == _ZERO:
        release = release[:-1]
    local = match["local"]
    return (
        (0, _number(match["epoch"] or "")),
        release,
        _pre(match),
        (0, _number(match["post_number"])) if match["post"] else _FIRST,
        (0, _number(match["dev_number"])) if match["dev"] else _LAST,
        _FIRST if local is None else (0, *map(_part, re.split(r"[._]", local.lower()))),
    )


def _pre(match: re.Match[str]) -> Key:
    if match["pre"]:
        return (0, _STAGES[match["pre"].lower()], _number(match["pre_number"]))
    # a development release of a version comes before its first alpha
    return _FIRST if match["dev"] and not match["post"] else _LAST


def _number(text: str) -> Key:
    """Return the sort key of a number in digits of any length; `int` refuses very long ones."""
    digits = text.lstrip("0")
    return (len(digits), digits)


def _part(text: str) -> Key:
    return (1, _number(text), "") if text.isascii() and text.isdigit() else (0, _ZERO, text)
