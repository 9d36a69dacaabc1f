"""Packages of operators export what they say, and look a name up once."""

from __future__ import annotations

import importlib
from pathlib import Path

import nojit.kernels
import pytest

FOLDER = Path(nojit.kernels.__path__[0])
PACKAGES = [
    ".".join(["nojit.kernels", *path.parent.relative_to(FOLDER).parts])
    for path in sorted(FOLDER.rglob("__init__.py"))
    if "lazily" in path.read_text()
]


def test_every_family_loads_its_operators_when_they_are_used():
    operators = [*FOLDER.rglob("op.py"), *FOLDER.rglob("op_*.py")]
    families = {path.relative_to(FOLDER).parts[0] for path in operators}
    assert {package.split(".")[2] for package in PACKAGES} == families | {"compat"}


@pytest.mark.parametrize("name", PACKAGES)
def test_a_name_is_looked_up_once(name):
    package = importlib.import_module(name)
    for exported in package.__all__:
        assert getattr(package, exported) is vars(package)[exported]
    with pytest.raises(AttributeError, match=f"module '{name}' has no attribute 'nothing'"):
        _ = package.nothing
