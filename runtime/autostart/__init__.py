"""Start nojit in every Python process of an environment: ``NOJIT_RECORD`` records it, ``NOJIT_SERVE`` serves it.

`FOLDER` holds a ``sitecustomize`` module, which Python imports when it starts if the folder is in ``PYTHONPATH``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from nojit.runtime.autostart.sitecustomize import when_imported

__all__ = ["FOLDER", "environment", "when_imported"]

FOLDER: Final = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib is slow
"""Folder to put first in ``PYTHONPATH``."""


def environment(given: Mapping[str, str], **variables: str) -> dict[str, str]:
    """Return an environment whose Python processes start nojit.

    Args:
        given: the environment to extend.
        variables: what to set, such as ``NOJIT_RECORD``.
    """
    path = given.get("PYTHONPATH", "")
    folders = [FOLDER, *(each for each in path.split(os.pathsep) if each != FOLDER)] if path else [FOLDER]
    return {**given, **variables, "PYTHONPATH": os.pathsep.join(folders)}
