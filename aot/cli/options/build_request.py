"""The build that a command line requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

__all__ = ["Request", "SharedRequest"]


@dataclass(frozen=True, slots=True)
class SharedRequest:
    """The shared cache that a command line requests."""

    url: str
    readonly: bool
    sign: Path | None
    """File of the private key that signs entries; None to write unsigned ones."""
    trust: tuple[Path, ...]
    """Files of the public keys of trusted entries; empty to take unsigned ones too."""

    @property
    def key_paths(self) -> tuple[Path, ...]:
        """Files of keys."""
        return self.trust if self.sign is None else (self.sign, *self.trust)

    def document(self) -> dict[str, Any]:
        """Return the request as JSON values."""
        return {**asdict(self), "sign": str(self.sign), "trust": list(map(str, self.trust))}


@dataclass(frozen=True, slots=True)
class Request:
    """The build that the command line requests."""

    places: tuple[Path, ...]
    """Manifests, recordings, and folders of either."""
    archs: tuple[str, ...]
    profile: str | None
    kernels: tuple[str, ...]
    folder: Path
    cache_folder: Path
    jobs: int
    timeout_s: float
    keep_going: bool
    most: int
    tuning: bool
    retune: bool
    tuned: bool
    min_driver: int | None
    build_number: int | None
    builder: str | None
    twins: bool
    name: str | None
    """Name of the bundle of recordings; None for that of the first recording."""
    trials: bool
    """Whether to build recorded specializations that only an autotuner's trials launched."""
    toolchains: tuple[tuple[str, Path | None], ...]
    """Name and environment of each Triton to compile with; None stands for the build's own environment."""
    assemblers: Mapping[str, Path]
    """Programs that assemble, by the name of their option; of the others, the build chooses one of Triton's."""
    dry_run: bool
    plan: bool
    """Whether to choose targets instead of building."""
    cache: SharedRequest | None
    """The shared cache; None to use the local folder only."""
    executor: str
    """Dask's address of the scheduler whose workers compile; empty to compile on this machine."""

    def document(self) -> dict[str, Any]:
        """Return the request as JSON values."""
        assemblers = {name: str(path) for name, path in self.assemblers.items()}
        places: dict[str, Any] = {"places": list(map(str, self.places)), "assemblers": assemblers}
        places["toolchains"] = [[name, str(place)] for name, place in self.toolchains]
        places["cache"] = self.cache.document() if self.cache else None
        return {**asdict(self), **places, "folder": str(self.folder), "cache_folder": str(self.cache_folder)}
