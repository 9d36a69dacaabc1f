"""Builds with several copies of Triton."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest
from nojit.runtime.bundle.file import BundleFile

from tests.aot.projects import HEADER, KERNEL, Project, entry
from tests.support.tritons import lend_triton

pytestmark = pytest.mark.triton

Make = Callable[[], Project]
OTHER = "3.0.1"
OWN = version("triton").partition("+")[0]
CONFIGS = f'configs = [{{ V = 1, toolchain = "{OWN}" }}, {{ V = 1, toolchain = "3.0" }}]'


@pytest.fixture(scope="module")
def same(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the same Triton under another version."""
    return lend_triton(tmp_path_factory.mktemp("same") / "venv", OTHER)


@pytest.fixture(scope="module")
def edited(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with a Triton that writes other code."""
    edit = ("f'--gpu-name={arch}'", "f'--gpu-name={arch}', '--opt-level=0'")
    return lend_triton(tmp_path_factory.mktemp("edited") / "venv", OTHER, edit)


def both(place: Path) -> tuple[str, ...]:
    return ("--toolchain", OWN, "--toolchain", f"3.0={place}")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that knows the digests of the Tritons' files, once they were read."""
    return tmp_path_factory.mktemp("cached") / "cache"


def with_configs(source: str) -> str:
    return entry("k", source).replace("configs = [{ V = 1 }]", CONFIGS)


def test_equal_images_of_two_toolchains_are_stored_once(project: Make, same: Path, cache: Path) -> None:
    files = project().write(k_py=KERNEL)
    built = files.build(with_configs("k.py:k"), words=both(same), cache=cache)
    assert built.code == 0, built.stderr
    with BundleFile(built.out / "demo-1.0-sm_80.nojit") as bundle:
        table = bundle.table("k")
        assert [dict(config.options)["toolchain"] for config in table.configs] == [OWN, "3.0"]
        assert list(table.columns["image"]) == [0, 0]
        tools = dict(bundle.index.toolchain)
    assert (tools["3.0/triton"], tools[f"{OWN}/triton"]) == (OTHER, version("triton"))
    assert tools["3.0/triton.digest"] != tools[f"{OWN}/triton.digest"]
    report = json.loads((built.out / "demo-1.0-sm_80.report.json").read_text(encoding="utf-8"))
    assert [(each["toolchain"], each["cached"]) for each in report["variants"]] == [(OWN, False), ("3.0", False)]
    # a second build gives the same bytes
    first = (built.out / "demo-1.0-sm_80.nojit").read_bytes()
    words = (*both(same), "--recheck", "--out", str(files.folder / "again"))
    assert files.build(with_configs("k.py:k"), words=words, cache=cache).code == 0
    assert (files.folder / "again" / "demo-1.0-sm_80.nojit").read_bytes() == first
    # and the statement names what made them
    statement = json.loads((built.out / "demo-1.0-sm_80.provenance.json").read_text(encoding="utf-8"))
    definition = statement["predicate"]["buildDefinition"]
    assert definition["externalParameters"]["toolchains"] == [OWN, "3.0"]
    tritons = [each for each in definition["resolvedDependencies"] if each["name"] == "triton"]
    assert {(each["annotations"]["toolchain"], each["uri"]) for each in tritons} == {
        ("3.0", f"pkg:pypi/triton@{OTHER}"),
        (OWN, f"pkg:pypi/triton@{version('triton')}"),
    }


def test_the_only_toolchain_of_a_command_line_leaves_no_name_in_the_bundle(
    project: Make, same: Path, cache: Path
) -> None:
    plain = project().write(k_py=KERNEL).build(entry("k", "k.py:k"), cache=cache)
    own = project().write(k_py=KERNEL).build(entry("k", "k.py:k"), words=("--toolchain", OWN), cache=cache)
    assert own.code == 0, own.stderr
    assert (own.out / "demo-1.0-sm_80.nojit").read_bytes() == (plain.out / "demo-1.0-sm_80.nojit").read_bytes()
    lent = project().write(k_py=KERNEL).build(entry("k", "k.py:k"), words=("--toolchain", f"3.0={same}"), cache=cache)
    with BundleFile(lent.out / "demo-1.0-sm_80.nojit") as bundle:
        assert dict(bundle.index.toolchain)["triton"] == OTHER


def test_each_toolchain_compiles_with_its_own_files(project: Make, edited: Path) -> None:
    built = project().write(k_py=KERNEL).build(with_configs("k.py:k"), words=both(edited))
    assert built.code == 0, built.stderr
    with BundleFile(built.out / "demo-1.0-sm_80.nojit") as bundle:
        assert len(set(bundle.table("k").columns["image"])) == 2


def test_a_toolchain_that_a_manifest_lists_needs_its_environment(project: Make) -> None:
    files = project().write(k_py=KERNEL)
    built = files.build(entry("k", "k.py:k"), header=f'{HEADER}toolchains = ["3.0"]\n')
    assert built.code == 1
    assert "expected --toolchain 3.0=VENV for each toolchain of the manifest" in built.stderr
    twice = files.build(entry("k", "k.py:k"), header=f'{HEADER}toolchains = ["{OWN}", "{OWN}"]\n')
    assert f"expected toolchains of different versions: leave one out, got {OWN}, {OWN}" in twice.stderr
