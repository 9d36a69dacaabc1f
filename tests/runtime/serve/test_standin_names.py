"""The stand-in has every name of every module of Triton, by a table that is made from Triton."""

from __future__ import annotations

import json

import pytest
from nojit.runtime.serve.standin import names, registry
from nojit.runtime.serve.standin.callbacks import Recorded, recorded, set_recorded

from tests.support import triton_names

OLDER = ("3.6", "3.7", "3.8")
TABLE = json.loads(triton_names.FILE.read_text(encoding="utf-8"))


@pytest.fixture
def version():
    """Set the version that the stand-in tells, for one test."""
    before = recorded()
    yield lambda text: set_recorded(Recorded(version=text))
    set_recorded(before)


def test_the_table_lists_the_names_of_the_installed_triton():
    triton = pytest.importorskip("triton")
    if triton_names.minor(triton.__version__) != TABLE["version"]:
        pytest.skip(f"the table is made from Triton {TABLE['version']}")
    found = json.loads(json.dumps(triton_names.names()))
    missing = {module: sorted(set(found[module]) - set(TABLE["names"].get(module, ()))) for module in found}
    # tests of this process may have added names to Triton's modules
    assert {module: lost for module, lost in missing.items() if lost} == {}
    differing = [
        (module, name)
        for module, given in TABLE["names"].items()
        for name, spec in given.items()
        if name in found.get(module, ()) and found[module][name] != spec
    ]
    assert differing == [], "write the table again: python -m tests.support.triton_names"


def test_the_table_holds_no_path_of_a_machine():
    assert "/work" not in triton_names.FILE.read_text(encoding="utf-8")
    assert "site-packages" not in triton_names.FILE.read_text(encoding="utf-8")


SCRIPT = """
import importlib, json
from nojit.runtime.serve.standin import names
failed = []
for module, given in names.table().items():
    found = importlib.import_module(module)
    for name in given:
        try:
            getattr(found, name)
            assert name in dir(found) or name == "__path__"
        except BaseException as error:
            failed.append(f"{module}.{name}: {error!r}")
print(json.dumps(failed))
"""


def test_every_name_of_every_module_exists(without_triton):
    assert without_triton(SCRIPT) == []


@pytest.mark.parametrize("older", OLDER)
def test_every_name_of_an_older_triton_exists(older, without_triton):
    set_version = f"standin.set_recorded(standin.Recorded(version='{older}.0'))\n"
    assert without_triton(set_version + SCRIPT) == []


@pytest.mark.parametrize("older", OLDER)
def test_an_older_version_has_its_own_names(older, version):
    version(f"{older}.1")
    lacks = TABLE["others"][older]["lacks"]
    found = names.table()
    for module, lost in lacks.items():
        assert module not in found if lost == "*" else not set(lost) & set(found[module]), module
    for module, given in TABLE["others"][older]["has"].items():
        assert given.items() <= found[module].items()


def test_a_version_without_a_table_has_the_newest_names(version):
    version("3.12.1")
    assert names.table() == TABLE["names"]


def test_every_implemented_name_is_one_of_tritons():
    strangers = [
        f"{module}.{name}"
        for module, given in registry.implementation().items()
        for name in given
        if name not in TABLE["names"][module]
    ]
    assert strangers == []


def test_implemented_objects_know_tritons_module_and_name():
    for module, given in registry.implementation().items():
        for name, value in given.items():
            if isinstance(value, type) and not name.startswith("_") and name == value.__name__:
                assert value.__module__.startswith("triton."), f"{module}.{name}"
