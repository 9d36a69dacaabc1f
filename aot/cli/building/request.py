"""The build that a command line requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

__all__ = ["Request"]


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
    tuned: bool
    min_driver: int | None
    build_number: int | None
    builder: str | None
    twins: bool
    name: str | None
    """Name of the bundle of recordings; None for that of the first recording."""
    trials: bool
    """Whether to build recorded specializations that only an autotuner's trials launched."""
    assemblers: Mapping[str, Path]
    """Programs that assemble, by the name of their option; of the others, the build chooses one of Triton's."""
    dry_run: bool

    def document(self) -> dict[str, Any]:
        """Return the request as JSON values."""
        assemblers = {name: str(path) for name, path in self.assemblers.items()}
        places = {"places": list(map(str, self.places)), "assemblers": assemblers}
        return {**asdict(self), **places, "folder": str(self.folder), "cache_folder": str(self.cache_folder)}
