"""Where bundles are found, and in which order."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from importlib.util import spec_from_file_location
from pathlib import Path
from typing import NoReturn

import pytest
from nojit.runtime.discovery import discover
from nojit.runtime.discovery.discover import Found
from nojit.runtime.discovery.installed import Provider
from nojit.runtime.errors import BundleError

from tests.support.bundles import kernel, make_bundle


@pytest.fixture(autouse=True)
def no_wheels(monkeypatch: pytest.MonkeyPatch) -> None:
    _install(monkeypatch)


def _install(monkeypatch: pytest.MonkeyPatch, *entries: tuple[str, str]) -> None:
    found = [Provider(name, package, name, "/nowhere") for name, package in entries]
    monkeypatch.setattr(discover, "providers", lambda: found)


def _touch(folder: Path, *names: str) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_bytes(b"")
    return [folder / name for name in names]


def _survey(environment: str, checkout: Path) -> list[Found]:
    """List what is found; whatever is wrong with a place is raised."""
    files, problems, broken = discover.survey({"NOJIT_BUNDLES": environment}, checkout)
    for problem in (*broken, *problems):
        raise problem
    return files


def _found(environment: str, checkout: Path) -> list[Path]:
    return [found.path for found in _survey(environment, checkout)]


def test_nothing_anywhere(tmp_path: Path) -> None:
    assert _survey("", tmp_path) == []


def test_environment_before_wheels_before_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (named,) = _touch(tmp_path / "named", "n.nojit")
    (wheel,) = _touch(tmp_path / "site" / "wheel_package", "w.nojit")
    (built,) = _touch(tmp_path / "artifacts", "a.nojit")
    monkeypatch.syspath_prepend(tmp_path / "site")
    _install(monkeypatch, ("demo", "wheel_package"))
    found = _survey(str(named), tmp_path)
    assert [(one.path, one.origin) for one in found] == [
        (named, "NOJIT_BUNDLES"),
        (wheel, "wheel demo"),
        (built, "checkout"),
    ]


def test_list_of_files_and_folders_keeps_its_order(tmp_path: Path) -> None:
    second, first = _touch(tmp_path / "b", "2.nojit", "1.nojit")
    _touch(tmp_path / "b", "report.json", "1.nojit.tmp")
    (file,) = _touch(tmp_path / "a", "x.nojit")
    (tmp_path / "b" / "folder.nojit").mkdir()
    places = os.pathsep.join(["", str(tmp_path / "b"), "", str(file)])
    assert _found(places, tmp_path) == [first, second, file]


def test_each_file_once(tmp_path: Path) -> None:
    (file,) = _touch(tmp_path / "artifacts", "x.nojit")
    (tmp_path / "link.nojit").symlink_to(file)
    places = os.pathsep.join([str(tmp_path / "link.nojit"), str(file), str(file.parent)])
    assert _found(places, tmp_path) == [tmp_path / "link.nojit"]


@pytest.mark.parametrize("make", [False, True])
def test_missing_or_empty_place_is_named(tmp_path: Path, make: bool) -> None:
    place = tmp_path / "place"
    if make:
        place.mkdir()
    with pytest.raises(BundleError) as raised:
        _found(str(place), tmp_path)
    assert "NOJIT_BUNDLES" in str(raised.value)
    assert str(place) in str(raised.value)


def test_a_place_that_cannot_be_looked_at_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BundleError, match=r"got File name too long - at NOJIT_BUNDLES: .*x"):
        _found(str(tmp_path / ("x" * 300)), tmp_path)

    def refuse(_path: object) -> NoReturn:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(BundleError, match="got Permission denied - at NOJIT_BUNDLES"):
        _found(str(tmp_path), tmp_path)


@pytest.mark.parametrize(
    ("call", "origin"), [("iterdir", "wheel demo"), ("is_dir", "wheel demo"), ("iterdir", "checkout")]
)
def test_a_wheel_and_a_checkout_that_cannot_be_looked_at_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, origin: str
) -> None:
    _touch(tmp_path / ("package" if origin != "checkout" else "artifacts"), "b.nojit")
    if origin != "checkout":
        monkeypatch.setattr(discover, "providers", lambda: [Provider("demo", "package", "demo", str(tmp_path))])

    def refuse(path: Path) -> NoReturn:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    monkeypatch.setattr(Path, call, refuse)
    where = str(tmp_path / "artifacts") if origin == "checkout" else "wheel demo, package package"
    with pytest.raises(BundleError, match=f"got Permission denied - at {where}$"):
        _survey("", tmp_path)
    _, problems, broken = discover.survey({}, tmp_path)
    assert (len(problems), len(broken)) == (int(origin == "checkout" or call == "is_dir"), int(origin != "checkout"))


def test_wheel_is_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _touch(tmp_path / "lazy_package", "w.nojit")
    (tmp_path / "lazy_package" / "__init__.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    _install(monkeypatch, ("demo", "lazy_package"))
    assert [one.path.name for one in _survey("", tmp_path)] == ["w.nojit"]


@pytest.mark.parametrize("value", ["no_such_package", "no_such_parent.package", "json.decoder"])
def test_wheel_without_its_package_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, value: str) -> None:
    _install(monkeypatch, ("demo", value))
    with pytest.raises(BundleError, match=value):
        _survey("", tmp_path)


EVIL = "from pathlib import Path; Path(__file__).with_name('ran').touch(); raise RuntimeError('imported')"


def _evil_package(folder: Path) -> Path:
    """Lay out a package that tells when it is imported."""
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(EVIL)
    return folder


@pytest.mark.parametrize(
    "value", ["evil_package", "evil_package.sub", "evil_package.module", "evil_package.sub.deeper", "evil_package.none"]
)
@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("look", ["survey", "named", "names"])
def test_no_package_of_an_entry_point_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str, beside: bool, look: str
) -> None:
    """Neither the one that it names nor one above it, whether it lies beside the entry point or elsewhere on the path."""
    folders = [_evil_package(tmp_path / "site" / "evil_package")]
    folders += [_evil_package(folders[0] / "sub"), _evil_package(folders[0] / "module_folder")]
    (folders[0] / "module.py").write_text(EVIL)
    monkeypatch.syspath_prepend(tmp_path / "site")
    provider = Provider("evil", value, "evil", str(tmp_path / ("site" if beside else "elsewhere")))
    monkeypatch.setattr(discover, "providers", lambda: [provider])
    if look == "survey":
        discover.survey({}, tmp_path)
    elif look == "names":
        discover.names({}, tmp_path)
    else:
        with pytest.raises(BundleError, match="evil_package"):
            discover.named("evil", {}, tmp_path)
    assert [module for module in sys.modules if module.startswith("evil_package")] == []
    assert list((tmp_path / "site").rglob("ran")) == []


def test_an_editable_install_has_its_bundles_where_its_finder_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Below a package that another folder holds, as installers map packages to folders of a checkout."""
    top = _evil_package(tmp_path / "checkout" / "source")
    (file,) = _touch(tmp_path / "checkout" / "built", "w.nojit")
    (file.parent / "__init__.py").write_text(EVIL)
    places = {"evil_mapped": top, "evil_mapped.bundles": file.parent}

    class Finder:
        @staticmethod
        def find_spec(name: str, path: object = None, target: object = None) -> object:
            place = places.get(name)
            return place and spec_from_file_location(name, place / "__init__.py")

    monkeypatch.setattr(sys, "meta_path", [object(), Finder, *sys.meta_path])
    _install(monkeypatch, ("demo", "evil_mapped.bundles"))
    assert _found("", tmp_path) == [file]
    assert [module for module in sys.modules if module.startswith("evil_mapped")] == []


def test_a_finder_that_raises_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Finder:
        @staticmethod
        def find_spec(name: str, path: object = None, target: object = None) -> NoReturn:
            raise RuntimeError("no GPU here")

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder])
    _install(monkeypatch, ("demo", "no_such_package"))
    _, problems, broken = discover.survey({}, tmp_path)
    assert problems == []
    assert [str(one) for one in broken] == [
        "expected the package that holds the bundles, got no GPU here - at wheel demo, package no_such_package"
    ]


@pytest.mark.parametrize(
    "value", ["{outside}", "..outside", "../outside", ".", "", "a..b", "package/../../outside", "a b"]
)
def test_what_is_no_package_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    """A path would have bundles found anywhere."""
    _touch(tmp_path / "outside", "o.nojit")
    _touch(tmp_path / "site" / "package", "w.nojit")
    package = value.format(outside=tmp_path / "outside")
    monkeypatch.setattr(discover, "providers", lambda: [Provider("demo", package, "demo", str(tmp_path / "site"))])
    files, _, broken = discover.survey({}, tmp_path)
    assert files == []
    assert "expected the package that holds the bundles, named as in `import`, got " in str(broken[0])


# by name


def _bundle(folder: Path, name: str, file: str = "b.nojit") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return make_bundle(folder / file, kernel("add", {"n": "i32"}), name=name)


def test_a_name_is_looked_for_everywhere_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = _bundle(tmp_path / "named", "Acme_Kernels")
    _bundle(tmp_path / "named", "other", "other.nojit")
    # what is installed goes by its entry point; nothing of it is opened
    (wheel,) = _touch(tmp_path / "site" / "wheel_package", "w.nojit")
    _touch(tmp_path / "site" / "other_package", "o.nojit")
    built = _bundle(tmp_path / "artifacts", "acme-kernels")
    monkeypatch.syspath_prepend(tmp_path / "site")
    _install(monkeypatch, ("acme.kernels", "wheel_package"), ("other", "other_package"))
    found = discover.named("acme-kernels", {"NOJIT_BUNDLES": str(tmp_path / "named")}, tmp_path)
    assert [(one.path, one.origin) for one in found] == [
        (named, "NOJIT_BUNDLES"),
        (wheel, "wheel acme.kernels"),
        (built, "checkout"),
    ]


def test_a_distribution_is_a_name_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (wheel,) = _touch(tmp_path / "acme_kernels_sm90", "w.nojit")
    provider = Provider("acme-kernels", "acme_kernels_sm90", "acme-kernels-sm90", str(tmp_path))
    monkeypatch.setattr(discover, "providers", lambda: [provider])
    for name in ("acme-kernels", "acme_kernels_sm90"):
        assert [one.path for one in discover.named(name, {}, tmp_path)] == [wheel]


def test_a_name_that_nothing_has_lists_what_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _bundle(tmp_path / "artifacts", "acme-kernels")
    _install(monkeypatch, ("more-kernels", "no_such_package"))
    with pytest.raises(FileNotFoundError) as raised:
        discover.named("acme-kernel", {}, tmp_path)
    message = str(raised.value)
    assert "did you mean 'acme-kernels'?" in message
    assert "found: acme-kernels, more-kernels" in message
    # the wheel that is broken is not asked for, and asked for it is told
    with pytest.raises(BundleError, match="no_such_package"):
        discover.named("more-kernels", {}, tmp_path)


def test_a_thin_wheel_alone_says_what_brings_bundles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    about = tmp_path / "acme_kernels-1.0.dist-info"
    about.mkdir()
    extras = "Provides-Extra: sm90\nProvides-Extra: all\n"
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: acme-kernels\nVersion: 1.0\n{extras}")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"its extras sm90, all bring .* pip install 'acme-kernels\[all\]'"):
        discover.named("acme-kernels", {}, tmp_path)


def test_names_are_those_that_find_something(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _bundle(tmp_path / "named", "Acme_Kernels")
    _bundle(tmp_path / "artifacts", "acme-kernels")
    _bundle(tmp_path / "artifacts", "other", "o.nojit")
    (tmp_path / "artifacts" / "broken.nojit").write_bytes(b"no bundle")
    provider = Provider("acme-kernels", "acme_kernels_sm90", "acme-kernels-sm90", str(tmp_path))
    monkeypatch.setattr(discover, "providers", lambda: [provider])
    places = os.pathsep.join([str(tmp_path / "missing"), str(tmp_path / "named")])
    assert discover.names({"NOJIT_BUNDLES": places}, tmp_path) == ["Acme_Kernels", "acme-kernels-sm90", "other"]


def test_a_missing_place_is_named_whatever_is_looked_for(tmp_path: Path) -> None:
    _bundle(tmp_path / "artifacts", "acme-kernels")
    with pytest.raises(BundleError, match="NOJIT_BUNDLES"):
        discover.named("acme-kernels", {"NOJIT_BUNDLES": str(tmp_path / "missing")}, tmp_path)


# for operators


def test_what_is_wrong_with_foreign_wheels_is_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _touch(tmp_path / "site" / "whole", "w.nojit")
    monkeypatch.syspath_prepend(tmp_path / "site")
    gone = [("acme", "no_acme"), ("NoJIT.kernels", "no_own"), ("whole", "whole")]
    _install(monkeypatch, *gone)
    files, problems, broken = discover.survey({"NOJIT_BUNDLES": str(tmp_path / "missing")}, tmp_path)
    assert [(one.origin, one.foreign) for one in files] == [("wheel whole", True)]
    assert [str(one).rpartition(" - at ")[2] for one in problems] == [
        f"NOJIT_BUNDLES: {tmp_path / 'missing'}",
        "wheel NoJIT.kernels, package no_own",
    ]
    assert [str(one).rpartition(" - at ")[2] for one in broken] == ["wheel acme, package no_acme"]


@pytest.mark.parametrize(
    ("bundles", "held"),
    [
        ([("a", False, "sm_80"), ("b", False, "sm_90a"), ("c", False, "sm_90a")], {"sm_80": "a", "sm_90a": "b"}),
        # a foreign one comes first by name, and fits some device better
        ([("a", True, "sm_90a"), ("b", True, "sm_89"), ("c", False, "sm_80")], {"sm_80": "c"}),
        ([("a", True, "sm_90a"), ("b", True, "sm_90a"), ("c", True, "sm_80")], {"sm_90a": "a", "sm_80": "c"}),
    ],
)
def test_operators_take_a_kernel_from_what_they_ask_for(
    bundles: list[tuple[str, bool, str]], held: dict[str, str]
) -> None:
    assert discover.bundles_of_kernels((*bundle, ["k"]) for bundle in bundles) == {"k": held}
    # what nobody else holds is taken from whom there is
    more = [*((*bundle, ["k"]) for bundle in bundles), ("z", True, "sm_90a", ["m", "k"])]
    assert discover.bundles_of_kernels(more)["m"] == {"sm_90a": "z"}


def test_own_checkout() -> None:
    root = Path(discover.__file__).resolve().parents[2]
    expected = root if (root / "pyproject.toml").is_file() else None
    assert discover._own_checkout() == expected


def test_importing_costs_no_metadata() -> None:
    code = "import sys, nojit.runtime.discovery.discover; print('importlib.metadata' in sys.modules)"
    # the editable finder of a checkout must not be what imports it
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout == "False\n"
