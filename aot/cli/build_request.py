"""The build that a command line requests."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

__all__ = ["Request"]


@dataclass(frozen=True, slots=True)
class Request:
    """The build that the command line requests."""

    places: tuple[Path, ...]
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
    ptxas: Path | None
    dry_run: bool

    def document(self) -> dict[str, Any]:
        """Return the request as JSON values."""
        places = {"places": list(map(str, self.places)), "ptxas": self.ptxas and str(self.ptxas)}
        return {**asdict(self), **places, "folder": str(self.folder), "cache_folder": str(self.cache_folder)}
