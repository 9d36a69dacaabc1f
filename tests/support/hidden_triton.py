"""Hides an installed Triton from the process that imports this, as if it were not installed."""

from __future__ import annotations

import sys
from importlib import metadata
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any

__all__: list[str] = []


class _Hidden(PathFinder):
    @classmethod
    def find_spec(cls, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return None if fullname == "triton" else PathFinder.find_spec(fullname, path, target)

    @staticmethod
    def find_distributions(context: Any = None) -> Any:
        context = metadata.DistributionFinder.Context() if context is None else context
        return [each for each in PathFinder.find_distributions(context) if each.metadata["Name"] != "triton"]


sys.meta_path[sys.meta_path.index(PathFinder)] = _Hidden
