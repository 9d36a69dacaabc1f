"""Finder of the installed distributions that Python modules belong to."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote, urlsplit

from nojit.runtime.discovery.installed import normalized

__all__ = ["Installed", "Origin"]


@dataclass(frozen=True, slots=True, order=True)
class Origin:
    """An installed distribution, with its version."""

    name: str
    """Normalized name, as package indexes use it: ``nojit-kernels``."""
    version: str
    editable: bool = False
    """True for an editable install, whose version does not determine the content of its files."""


class Installed:
    """The distributions that are installed for the running Python."""

    def __init__(self) -> None:
        self._owners: dict[str, tuple[_Owner, ...]] = {}

    def origins_of(self, modules: Iterable[tuple[str, str]]) -> tuple[tuple[Origin, ...], tuple[Path, ...]]:
        """Return the distributions that modules belong to, and the files of modules that belong to none.

        Args:
            modules: (module name, file) of each module.

        Returns:
            The distributions, and the other files, both sorted. Modules of the standard library are in neither.
        """
        origins: set[Origin] = set()
        files: set[Path] = set()
        for name, file in modules:
            top = name.partition(".")[0]
            path = Path(file).resolve()
            owner = next((owner for owner in self._owners_of(top) if owner.has(path)), None)
            if owner is not None:
                origins.add(owner.origin)
            elif not _is_standard(path):
                files.add(path)
        return tuple(sorted(origins)), tuple(sorted(files))

    def _owners_of(self, top: str) -> tuple[_Owner, ...]:
        if top not in self._owners:
            names = dict.fromkeys(self._packages.get(top, ()))
            found = (each for name in names for each in metadata.distributions(name=name))
            # editable installs first: metadata next to the sources, in the current folder, does not list their files
            self._owners[top] = tuple(sorted(map(_Owner, found), key=lambda owner: not owner.origin.editable))
        return self._owners[top]

    @cached_property
    def _packages(self) -> Mapping[str, list[str]]:
        return metadata.packages_distributions()


def _is_standard(path: Path) -> bool:
    """Return whether a file belongs to Python's standard library, and not to site-packages below its folder."""
    library = Path(json.__file__).resolve().parents[1]
    return path.is_relative_to(library) and not {"site-packages", "dist-packages"} & {*path.relative_to(library).parts}


class _Owner:
    """A distribution that provides a top-level package."""

    def __init__(self, distribution: metadata.Distribution) -> None:
        self._root = Path(str(distribution.locate_file(""))).resolve()
        self._distribution = distribution
        self._sources = _sources_of(distribution)
        self.origin = Origin(
            normalized(distribution.metadata["Name"]), distribution.version, editable=self._sources is not None
        )

    def has(self, path: Path) -> bool:
        """Return whether a file belongs to the distribution."""
        if self._sources is not None:
            return path.is_relative_to(self._sources)
        return path in self._files if self._files else path.is_relative_to(self._root)

    @cached_property
    def _files(self) -> frozenset[Path]:
        return frozenset(self._root / file for file in self._distribution.files or ())


def _sources_of(distribution: metadata.Distribution) -> Path | None:
    """Return the source folder of an editably installed distribution; None for any other distribution."""
    try:
        said = json.loads(distribution.read_text("direct_url.json") or "{}")
        if not said.get("dir_info", {}).get("editable"):
            return None
        return Path(unquote(urlsplit(said["url"]).path)).resolve()
    except (ValueError, LookupError, TypeError, AttributeError):
        return None
