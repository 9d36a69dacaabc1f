"""`nojit doctor`: what it finds, and which bundle each device would use."""

from __future__ import annotations

import contextlib
import json
import os
import re
import zipfile
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from nojit.aot.inspect.device_choice import BundleState, Raising, choose
from nojit.aot.inspect.doctor import DriverState, examine_bundle, examine_cache, probe_driver
from nojit.kernels import library
from nojit.runtime.bundle.format import TargetInfo
from nojit.runtime.discovery.discover import Found
from nojit.runtime.discovery.installed import Provider
from nojit.runtime.errors import BundleFormatError, BundleTrustError, DriverError
from nojit.runtime.loader import Bundle, load
from nojit.runtime.trust.envelope import signed_path

from tests.aot.cli.conftest import Run
from tests.support.bundles import Parts, kernel, make_bundle, target
from tests.support.signing import Signer, envelope, make_statement, trusted_keys
from tests.support.wheels import put_provider

Document = Callable[..., dict[str, Any]]


def state(image_arch: str, path: str = "", **facts: Any) -> BundleState:
    base: dict[str, Any] = {
        "origin": "test",
        "problem": "",
        "name": "demo",
        "image_arch": image_arch,
        "kernels": ("k",),
    }
    return BundleState(path or image_arch, **base | {"min_driver": 12000} | facts)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """Say which devices there are and which bundles are found."""

    def arrange(*devices: int, archs: tuple[str, ...] = (), version: int = 13000) -> None:
        driver = DriverState(version, devices, "" if devices else "no device")
        monkeypatch.setattr("nojit.aot.inspect.doctor.probe_driver", lambda: driver)
        for image_arch in archs:
            on = TargetInfo("cuda", image_arch.rstrip("af"), image_arch, 32)
            make_bundle(tmp_path / f"{image_arch}.nojit", kernel("copy", {"x_ptr": "*fp32", "n": "i32"}, on=on), on=on)
        monkeypatch.setenv("NOJIT_BUNDLES", str(tmp_path) if archs else "")
        monkeypatch.setattr("nojit.runtime.discovery.discover._own_checkout", lambda: None)

    return arrange


def test_exact_image_is_preferred(machine: Callable[..., None], document: Document, tmp_path: Path, run: Run) -> None:
    machine(90, archs=("sm_80", "sm_90a"))
    written = document("doctor")
    assert written["devices"][0]["used"] == [str(tmp_path / "sm_90a.nojit")]
    assert "has sm_80; the device is sm_90" in written["devices"][0]["rejected"][0]
    assert "device 0, sm_90 would use" in run("doctor").stdout


def test_device_that_no_bundle_fits_exits_4(machine: Callable[..., None], document: Document, run: Run) -> None:
    machine(90, 103, archs=("sm_90a",))
    written = document("doctor", code=4)
    assert [bool(choice["used"]) for choice in written["devices"]] == [True, False]
    shown = run("doctor")
    assert "device 1, sm_103: no bundle fits" in shown.stderr
    assert "has sm_90a; the device is sm_103" in shown.stdout


def test_no_bundle_for_a_device_exits_4(machine: Callable[..., None], run: Run) -> None:
    machine(90)
    assert run("doctor").exit_code == 4


def test_no_device_has_nothing_to_match(machine: Callable[..., None], run: Run) -> None:
    machine()
    result = run("doctor")
    assert result.exit_code == 0
    assert "no bundle found" in result.stdout


def test_old_driver_is_named(machine: Callable[..., None], run: Run) -> None:
    machine(90, archs=("sm_90a",), version=11080)
    result = run("doctor")
    assert result.exit_code == 4
    assert "needs a driver for CUDA 12.0 (525.60.13 or later); this one is for 11.8" in result.stdout
    assert "device 0, sm_90 cannot use test, which needs a driver for CUDA 12.0" in result.stderr


def test_damaged_bundle_is_named(machine: Callable[..., None], run: Run, tmp_path: Path) -> None:
    machine(90, archs=("sm_90a",))
    (tmp_path / "bad.nojit").write_bytes(b"not a bundle")
    result = run("doctor")
    assert result.exit_code == 1
    assert str(tmp_path / "bad.nojit") in result.stderr
    assert "device 0, sm_90: no bundle loads" in result.stderr
    assert "would use" not in result.stdout
    with pytest.raises(BundleFormatError):
        load("test")


@pytest.fixture
def guarded(machine: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Path]]:
    """Make bundles for a process that loads only what is signed; each is where it is, its name, arch and kernels, ``!`` if unsigned."""
    signer = Signer.of("release")

    def arrange(*bundles: str) -> list[Path]:
        machine(90)
        paths = []
        for words in bundles:
            file, name, image_arch, *kernels = words.removesuffix("!").split()
            on = target(image_arch)
            path = tmp_path / "guarded" / f"{file}.nojit"
            path.parent.mkdir(exist_ok=True)
            make_bundle(path, *(kernel(one, {"n": "i32"}, on=on) for one in kernels), on=on, name=name)
            if not words.endswith("!"):
                Path(signed_path(str(path))).write_bytes(envelope(make_statement(path), signer))
            paths.append(path)
        monkeypatch.setenv("NOJIT_BUNDLES", os.pathsep.join(map(str, paths)))
        monkeypatch.setenv("NOJIT_TRUST", "signed")
        monkeypatch.setenv("NOJIT_TRUSTED_KEYS", str(trusted_keys(tmp_path / "trusted.toml", signer)))
        return paths

    return arrange


UNSIGNED = "expected a signed statement beside the bundle"


@pytest.mark.parametrize(
    ("bundles", "used", "raising"),
    [
        # one that comes first, and one that nothing is taken of: all that a name stands for is opened
        (["0 acme sm_90a k!", "1 acme sm_90a k"], [], {"acme", "k"}),
        (["0 acme sm_90a k", "1 Acme sm_90a k!"], [], {"acme"}),
        # of another arch, and one that fits less well
        (["0 acme sm_80 k!", "1 acme sm_90a k"], [], {"acme", "k"}),
        (["0 acme sm_90a k", "1 acme sm_90 k!"], [], {"acme", "k"}),
        # operators take kernels whatever the bundles are called
        (["0 other sm_90a k!", "1 acme sm_90a k"], [], {"other", "k"}),
        (["0 acme sm_90a k", "1 other sm_90a k!"], [0], {"other"}),
        (["0 other sm_80 k!", "1 acme sm_90a k m"], [1], {"other", "k"}),
        (["0 other sm_80 k!", "1 acme sm_90a k"], [], {"other", "k"}),
        (["0 other sm_90a k!", "1 acme sm_90a k m"], [1], {"other", "k"}),
        # others that have nothing to do with it
        (["0 other sm_90a m!", "1 acme sm_90a k"], [1], {"other", "m"}),
        (["0 acme sm_90a k", "1 acme sm_80 k m"], [0], set()),
        (["0 acme sm_90a k!"], [], {"acme", "k"}),
    ],
)
def test_what_is_not_signed_takes_along_what_it_is_loaded_with(
    guarded: Callable[..., list[Path]], run: Run, bundles: list[str], used: list[int], raising: set[str]
) -> None:
    paths = [str(path) for path in guarded(*bundles)]
    unsigned = {path for path, words in zip(paths, bundles, strict=True) if words.endswith("!")}
    shown = run("doctor", "--json")
    written = json.loads(shown.stdout)
    assert shown.exit_code == (1 if raising else 0)
    assert written["devices"][0]["used"] == [paths[number] for number in used]
    assert {bundle["path"] for bundle in written["bundles"] if UNSIGNED in bundle["problem"]} == unsigned
    reasons = dict(written["devices"][0]["rejected"])
    assert all(UNSIGNED in reasons[path] for path in unsigned)
    assert reasons.keys() == {*paths} - {*written["devices"][0]["used"]}
    # it is what loading does
    names = [{"name": bundle["name"], "kernels": bundle["kernels"]} for bundle in written["bundles"]]
    for name in {bundle["name"].lower() for bundle in names}:
        with pytest.raises(BundleTrustError) if name in raising else contextlib.nullcontext():
            load(name)
    for one in {one for bundle in names for one in bundle["kernels"]}:
        with pytest.raises(BundleTrustError) if one in raising else contextlib.nullcontext():
            library._from_bundles(one)
    said = written["problems"]
    assert {
        word for problem in said for word in re.findall(r"load\('(\w+)'\) raises|that launch (\w+) raise", problem)
    } == {(name, "") if name in {"acme", "other"} else ("", name) for name in raising}
    shown = run("doctor")
    assert all(problem in shown.stderr for problem in said)
    assert ("would use" in shown.stdout) == bool(used)
    assert ("no bundle loads" in shown.stderr) == (not used)


def test_a_signature_that_soon_expires_is_told(
    guarded: Callable[..., list[Path]], run: Run, document: Document, tmp_path: Path
) -> None:
    paths = guarded("0 a sm_90a k", "1 b sm_90a l", "2 c sm_90a m", "3 d sm_90a n")
    days = (None, 40, 20, -1)
    for path, ahead in zip(paths, days, strict=True):
        moment = datetime.now(UTC) + timedelta(days=ahead or 0, hours=1)
        said = {} if ahead is None else {"nojit_expiresOn": moment.strftime("%Y-%m-%dT%H:%M:%SZ")}
        statement = make_statement(path, metadata=said)
        Path(signed_path(str(path))).write_bytes(envelope(statement, Signer.of("release")))
    result = run("doctor")
    assert f"{paths[2]}: its signature expires in 20 days: run nojit sign again" in result.stderr
    assert "expires in" not in result.stderr.replace(f"{paths[2]}: its signature expires in 20 days", "")
    assert f"{paths[3]}: expected a statement that is valid at " in result.stderr
    assert result.exit_code == 1
    written = document("doctor", code=1)["bundles"]
    assert [bool(one["expires"]) for one in written] == [False, True, True, False]


def test_keys_without_a_policy_are_told(
    machine: Callable[..., None], run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    machine(90, archs=("sm_90a",))
    assert "NOJIT_TRUSTED_KEYS" not in run("doctor").stderr
    monkeypatch.setenv("NOJIT_TRUSTED_KEYS", str(tmp_path / "trusted.toml"))
    result = run("doctor")
    assert "NOJIT_TRUSTED_KEYS without NOJIT_TRUST=signed: bundles load with any signature or none" in result.stderr
    assert result.exit_code == 0
    monkeypatch.setenv("NOJIT_TRUST", "any")
    assert "NOJIT_TRUSTED_KEYS" not in run("doctor").stderr


def test_a_wheel_goes_by_two_names(
    guarded: Callable[..., list[Path]], document: Document, monkeypatch: pytest.MonkeyPatch
) -> None:
    (first,) = guarded("0 acme sm_90a k!")
    second = first.parent / "acme_sm90" / "b.nojit"
    second.parent.mkdir()
    make_bundle(second, kernel("m", {"n": "i32"}, on=target("sm_90a")), on=target("sm_90a"), name="acme")
    Path(signed_path(str(second))).write_bytes(envelope(make_statement(second), Signer.of("release")))
    provider = Provider("acme", "acme_sm90", "acme-sm90", str(first.parent))
    monkeypatch.setattr("nojit.runtime.discovery.discover.providers", lambda: [provider])
    written = document("doctor", code=1)
    # `acme` stands for both, and `acme-sm90` for what the wheel holds alone
    assert [problem.partition(":")[0] for problem in written["problems"]] == [
        "runtime.load('acme') raises",
        "operators that launch k raise",
    ]
    assert dict(written["devices"][0]["rejected"])[str(second)].startswith("runtime.load('acme') raises: ")
    load("acme-sm90").close()
    with pytest.raises(BundleTrustError):
        load("acme")


def test_foreign_wheels_stand_in_nobodys_way(
    machine: Callable[..., None], run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What operators use, doctor says, whatever other wheels hold under the same names; those that are broken are named."""
    machine(90, 89)
    site = tmp_path / "site"
    monkeypatch.syspath_prepend(site)
    put_provider(site, "a-empty")
    (put_provider(site, "b-damaged") / "b.nojit").write_bytes(b"no bundle")
    packages = [put_provider(site, name) for name in ("c-foreign", "nojit-kernels")]
    paths = {}
    for package, image_arch, kernels in [
        (packages[0], "sm_90a", "km"),
        (packages[0], "sm_89", "k"),
        (packages[1], "sm_90a", "k"),
        (packages[1], "sm_80", "k"),
    ]:
        on = target(image_arch)
        path = package / f"{image_arch}.nojit"
        make_bundle(path, *(kernel(one, {"n": "i32"}, on=on) for one in kernels), on=on)
        paths[path.parent.name, image_arch] = str(path)
    foreign, own = paths["c_foreign", "sm_90a"], paths["nojit_kernels", "sm_90a"]
    shown = run("doctor", "--json")
    written = json.loads(shown.stdout)
    assert [set(choice["used"]) for choice in written["devices"]] == [{foreign, own}, {paths["nojit_kernels", "sm_80"]}]
    assert (
        dict(written["devices"][1]["rejected"])[paths["c_foreign", "sm_89"]]
        == f"{paths['nojit_kernels', 'sm_80']} comes first"
    )
    served = {one: library._from_bundles(one) for one in "km"}
    assert served["k"]._bundles.bundle_for(90).images.file.path == own
    assert served["k"]._bundles.bundle_for(89).images.file.path == paths["nojit_kernels", "sm_80"]
    assert served["m"]._bundles.bundle_for(90).images.file.path == foreign
    # to load one by its name is another matter
    assert shown.exit_code == 1
    assert [problem.partition(":")[0] for problem in written["problems"]] == [
        f"runtime.load('{name}') raises" for name in ("a-empty", "b-damaged")
    ]
    assert "wheel a-empty, package a_empty" in written["discovery_problem"]
    shown = run("doctor")
    assert "device 0, sm_90 would use" in shown.stdout
    assert str(site / "b_damaged/b.nojit") in shown.stderr
    assert "wheel a-empty, package a_empty" in shown.stderr


def test_a_thin_wheel_without_bundles_says_which_extra_is_for_the_device(
    machine: Callable[..., None], document: Document, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    site = tmp_path / "site"
    monkeypatch.syspath_prepend(site)
    folder = tmp_path / "artifacts"
    folder.mkdir()
    for image_arch in ("sm_80", "sm_90a"):
        on = target(image_arch)
        path = folder / f"{image_arch}.nojit"
        make_bundle(path, kernel("k", {"n": "i32"}, on=on), on=on, name="Acme_Kernels")
    # as it is packed, both under the bundles' own name and under another
    for name in ("acme-kernels", "more"):
        assert run("wheel", folder, "--name", name, "--out", tmp_path / "dist").exit_code == 0
        with zipfile.ZipFile(tmp_path / f"dist/{name.replace('-', '_')}-1.0-py3-none-any.whl") as thin:
            thin.extractall(site)
    # what other projects call their extras is their business
    other = put_provider(site, "other").parent / "other-1.0.dist-info/METADATA"
    other.write_text(
        "Metadata-Version: 2.4\nName: other\nVersion: 1.0\nRequires-Dist: other-sm90==1.0; extra == 'sm90'\n"
    )
    (other.parent / "entry_points.txt").unlink()
    machine(90, 86, 103)
    written = document("doctor", code=4)
    assert written["thin_wheels"] == {name: ["sm_80", "sm_90"] for name in ("acme-kernels", "more")}
    said = [dict(choice["missing"])["acme-kernels"].partition(": ") for choice in written["devices"]]
    assert {words for words, _, _ in said} == {"is installed without a bundle"}
    assert [remedy for _, _, remedy in said] == [
        "pip install 'acme-kernels[sm90]'",
        "pip install 'acme-kernels[sm80]'",
        "install or build it for sm_103",
    ]
    shown = run("doctor").stderr
    assert "device 0, sm_90 cannot use more, which is installed without a bundle: pip install 'more[sm90]'" in shown
    machine()
    assert "acme-kernels is installed without a bundle: pip install 'acme-kernels[all]'" in run("doctor").stderr
    # with one provider, the device that it is not for is told of the other
    machine(90, 86)
    for name in ("acme_kernels", "more"):
        with zipfile.ZipFile(tmp_path / f"dist/{name}_sm80-1.0-py3-none-any.whl") as provider:
            provider.extractall(site)
    first, second = document("doctor", code=4)["devices"]
    assert first["missing"] == [["Acme_Kernels", "has sm_80: pip install 'Acme_Kernels[sm90]'"]]
    assert second["missing"] == []


def test_many_kernels_are_not_all_named(guarded: Callable[..., list[Path]], document: Document) -> None:
    guarded("0 acme sm_90a a b c d e f g!")
    assert "operators that launch a, b, c, d, e and 2 more raise: " in document("doctor", code=1)["problems"][1]


def test_a_policy_that_cannot_be_told_refuses_all(
    guarded: Callable[..., list[Path]], document: Document, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guarded("0 acme sm_90a k", "1 acme sm_80 k!")
    monkeypatch.setenv("NOJIT_TRUSTED_KEYS", str(tmp_path / "none.toml"))
    written = document("doctor", code=1)
    assert all("expected a TOML file of trusted keys" in bundle["problem"] for bundle in written["bundles"])
    (problem,) = written["problems"]
    assert problem.startswith("expected a TOML file of trusted keys, got No such file")


def test_a_damaged_bundle_that_is_not_signed_is_damaged(guarded: Callable[..., list[Path]], document: Document) -> None:
    _, other = guarded("0 acme sm_90a k", "1 other sm_90a m!")
    parts = Parts.of(kernel("m", {"n": "i32"}, on=target("sm_90a")), on=target("sm_90a"), name="other")
    # its hash is right, so that a process which asks for a signature first says that
    other.write_bytes(replace(parts, index=replace(parts.index, name="no name")).seal())
    written = document("doctor", code=1)
    assert written["devices"][0]["used"] == []
    assert written["problems"] == [f"{other}: {written['bundles'][1]['problem']}"]
    for ask in (lambda: load("acme"), lambda: library._from_bundles("k")):
        with pytest.raises(BundleFormatError):
            ask()


def test_missing_place_is_named(
    machine: Callable[..., None], document: Document, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(90)
    monkeypatch.setenv("NOJIT_BUNDLES", "/no/such/place")
    assert "/no/such/place" in document("doctor", code=1)["discovery_problem"]
    assert "/no/such/place" in run("doctor").stderr


def test_places_behind_a_missing_one_are_listed(
    machine: Callable[..., None], document: Document, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    machine(90, archs=("sm_90a",))
    monkeypatch.setenv("NOJIT_BUNDLES", f"/no/such/place:{tmp_path}:/nor/this")
    written = document("doctor", code=1)
    assert [bundle["path"] for bundle in written["bundles"]] == [str(tmp_path / "sm_90a.nojit")]
    # load by name and operators stop at the first place that is missing
    assert written["devices"][0]["used"] == []
    assert len(written["discovery_problems"]) == 2
    assert written["problems"] == written["discovery_problems"]
    assert written["discovery_problem"] == written["discovery_problems"][0]
    assert written["bundle_places"] == ["/no/such/place", str(tmp_path), "/nor/this"]
    shown = run("doctor")
    assert "/no/such/place" in shown.stderr
    assert "/nor/this" in shown.stderr
    assert f"NOJIT_BUNDLES  /no/such/place (missing), {tmp_path}, /nor/this (missing)" in shown.stdout


@pytest.mark.parametrize(
    "setting",
    [
        "NOJIT_BATCH_INVARIANT=x",
        "NOJIT_DEBUG_INFO=/no/such/twins",
        "NOJIT_MISS=maybe",
        "NOJIT_TRUST=perhaps",
        "NOJIT_TUNING=/no/such/table.toml",
    ],
)
@pytest.mark.parametrize("devices", [(), (90,)])
def test_a_variable_that_says_what_it_cannot_exits_1(
    machine: Callable[..., None], run: Run, monkeypatch: pytest.MonkeyPatch, devices: tuple[int, ...], setting: str
) -> None:
    machine(*devices, archs=("sm_90a",))
    variable, _, said = setting.partition("=")
    monkeypatch.setenv(variable, said)
    written = json.loads(run("doctor", "--json").stdout)
    assert any(variable in problem for problem in written["problems"])
    assert all(choice["used"] == [] for choice in written["devices"])
    shown = run("doctor")
    assert shown.exit_code == 1
    assert variable in shown.stderr
    assert "would use" not in shown.stdout


def test_a_bundle_with_the_twin_of_another_build_is_not_used(
    machine: Callable[..., None], run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    machine(90, archs=("sm_90a",))
    on = TargetInfo("cuda", "sm_90", "sm_90a", 32)
    (tmp_path / "twins").mkdir()
    twin = make_bundle(tmp_path / "twins" / "it.nojit", kernel("copy", {"n": "i32"}, on=on), on=on, name="test-debug")
    monkeypatch.setenv("NOJIT_DEBUG_INFO", str(twin))
    result = run("doctor")
    assert result.exit_code == 1
    assert f"{tmp_path / 'sm_90a.nojit'}: expected a debug twin of bundle" in result.stderr
    assert "would use" not in result.stdout


@pytest.mark.parametrize(
    ("capability", "archs", "used"),
    [
        (86, ["sm_80", "sm_86"], ["sm_86"]),
        (89, ["sm_89", "sm_80"], ["sm_89"]),
        (89, ["sm_80", "sm_86"], ["sm_86"]),
        (80, ["sm_86"], []),
        (103, ["sm_100a", "sm_100f"], ["sm_100f"]),
        (103, ["sm_100f", "sm_103a"], ["sm_103a"]),
        (90, ["sm_80", "sm_100a"], []),
    ],
)
def test_choice(capability: int, archs: list[str], used: list[str]) -> None:
    choice = choose(0, capability, 13000, [state(image_arch) for image_arch in archs])
    assert list(choice.used) == used
    assert {path for path, _ in choice.rejected} == set(archs) - set(used)
    assert all(reason for _, reason in choice.rejected)


def test_kernels_come_from_the_first_of_equals() -> None:
    bundles = [
        state("sm_90a", "first"),
        state("sm_90a", "second"),
        state("sm_90a", "other", name="more", kernels=("other",)),
        state("sm_90a", "partly", kernels=("k", "new")),
    ]
    choice = choose(0, 90, 13000, bundles)
    assert choice.used == ("first", "other", "partly")
    assert choice.rejected == (("second", "first comes first"),)
    assert choice.missing == ()


def test_a_bundle_of_another_name_can_stand_in() -> None:
    bundles = [state("sm_86", "old", name="old"), state("sm_80", "new")]
    choice = choose(0, 86, 13000, bundles)
    assert choice.used == ("old",)
    assert choice.rejected == (("new", "old fits better"),)
    # every kernel of it is at hand
    assert choice.missing == ()


def test_foreign_bundles_serve_what_no_other_one_holds() -> None:
    bundles = [
        state("sm_90a", "refused", name="r", kernels=("k", "m"), problem="unsigned", untrusted=True, foreign=True),
        state("sm_90a", "foreign", name="f", kernels=("k", "m"), foreign=True),
        state("sm_80", "own"),
    ]
    choice = choose(0, 90, 13000, bundles)
    assert choice.used == ("foreign",)
    assert choice.rejected == (("refused", "unsigned"), ("own", "has sm_80; the device is sm_90"))
    # of a kernel that the library has, for whichever device, nothing is taken from elsewhere
    alone = choose(0, 90, 13000, [state("sm_90a", "foreign", name="f", foreign=True), bundles[-1]])
    assert alone.used == ()
    assert dict(alone.rejected)["foreign"] == "own comes first"
    assert alone.missing == (("demo", "has sm_80: install or build it for sm_90"),)


def test_what_is_missing_says_what_to_do() -> None:
    bundles = [state("sm_80", "a"), state("sm_90a", "b"), state("sm_100f", "c", name="more", kernels=("m",))]
    choice = choose(0, 103, 12080, [*bundles, state("", "broken", name="", problem="truncated", kernels=())])
    assert choice.used == ("c",)
    assert choice.missing == (("demo", "has sm_80, sm_90a: install or build it for sm_103"),)
    assert choice.rejected[-1] == ("broken", "truncated")
    late = choose(0, 90, 12080, [state("sm_90a", min_driver=13000)])
    assert late.used == ()
    assert late.missing == (("demo", "needs a driver for CUDA 13.0 (580.65.06 or later); this one is for 12.8"),)


def test_what_cannot_be_loaded_is_used_for_nothing_and_nothing_stands_in() -> None:
    bundles = [
        state("sm_90a", "a", problem="unsigned", untrusted=True),
        state("sm_90a", "b"),
        state("sm_90a", "c", name="more", kernels=("k", "m")),
        state("sm_90a", "d", name="most", kernels=("n",)),
        state("sm_80", "e", problem="unsigned", untrusted=True),
    ]
    choice = choose(0, 90, 13000, bundles, Raising({"d": "by name"}, {"k": "operators"}))
    assert choice.used == ("c",)
    assert choice.rejected == (("a", "unsigned"), ("b", "a comes first"), ("d", "by name"), ("e", "unsigned"))
    # what to build or to install is another question
    assert choice.missing == ()
    choice = choose(0, 90, 13000, bundles, Raising({}, {"k": "operators", "m": "operators"}))
    assert choice.used == ("d",)
    assert ("c", "operators") in choice.rejected


def test_a_launch_chooses_as_doctor_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For bundles of every image arch, in two orders: the file that serves a device is the one that doctor names."""
    archs = ["sm_80", "sm_86", "sm_90a", "sm_100f", "sm_103a", "sm_80", "sm_90a"]
    paths = []
    for number, image_arch in enumerate(archs):
        on = TargetInfo("cuda", image_arch.rstrip("af"), image_arch, 32)
        path = tmp_path / f"{number}.nojit"
        paths.append(make_bundle(path, kernel("copy", {"n": "i32"}, on=on), on=on))
    for order in (paths, paths[::-1]):
        states = [examine_bundle(Found(path, "test")) for path in order]
        copy = Bundle(order, first_wins=True).kernel("copy")
        for capability in (80, 86, 89, 90, 100, 103):
            (used,) = choose(0, capability, 13000, states).used
            assert copy._bundles.bundle_for(capability).images.file.path == used


def test_driver_is_asked_through_the_core(monkeypatch: pytest.MonkeyPatch) -> None:
    class Core:
        @staticmethod
        def driver_version() -> int:
            return 13010

        @staticmethod
        def device_count() -> int:
            return 2

        @staticmethod
        def device_capability(device: int) -> int:
            return (90, 103)[device]

    monkeypatch.setattr("nojit.aot.inspect.doctor._core", Core)
    assert probe_driver() == DriverState(13010, (90, 103), "")
    monkeypatch.setattr(Core, "device_count", lambda: 0)
    assert probe_driver() == DriverState(13010, (), "no device")

    def fail() -> int:
        raise DriverError("cuInit", 999, "CUDA_ERROR_UNKNOWN")

    monkeypatch.setattr(Core, "device_count", fail)
    assert "CUDA_ERROR_UNKNOWN" in probe_driver().problem
    monkeypatch.setattr(Core, "driver_version", fail)
    assert probe_driver().problem.startswith("no GPU driver: ")


def test_cache_is_looked_at_and_not_made(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    assert examine_cache(folder).exists is False
    assert not folder.exists()
    (folder / "ab").mkdir(parents=True)
    (folder / "ab" / ("c" * 62)).write_bytes(bytes(10))
    (folder / "ab" / ".temporary").write_bytes(bytes(10))
    (folder / "ab" / ("d" * 62)).symlink_to("none")
    seen = examine_cache(folder)
    assert (seen.entries, seen.size_bytes, seen.problem) == (1, 10, "")
    (tmp_path / "link").symlink_to(folder)
    assert "symbolic link" in examine_cache(tmp_path / "link").problem
    assert "not a folder" in examine_cache(folder / "ab" / ("c" * 62)).problem


TUNED = """schema = 1
kernel = "copy"
key = ["{key}"]
device = {{ name = "NVIDIA H200", arch = "sm_90", multiprocessors = 132, memory_bytes = 150754820096 }}
config = [{{ num_warps = 4 }}]
entry = [{{ where = {{}}, rows = [{{ at = [16], use = [0] }}] }}]
"""


@pytest.fixture
def tuned(machine: Callable[..., None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], Path]:
    """Tune the bundle of a machine by a file of one key."""

    def write(key: str) -> Path:
        machine(90, archs=("sm_90a",))
        path = tmp_path / "copy.toml"
        path.write_text(TUNED.format(key=key))
        monkeypatch.setenv("NOJIT_TUNING", str(path))
        return path

    return write


def test_tuned_tables_of_the_environment_are_named(tuned: Callable[[str], Path], document: Document, run: Run) -> None:
    path = tuned("n")
    assert document("doctor")["tuning"]["tables"] == [f"copy on NVIDIA H200: {path}"]
    shown = run("doctor")
    assert f"NOJIT_TUNING tunes copy on NVIDIA H200: {path}" in shown.stdout


def test_a_tuned_table_that_its_kernel_does_not_know_is_told(tuned: Callable[[str], Path], document: Document) -> None:
    tuned("wrong")
    written = document("doctor", code=1)
    (problem,) = written["tuning"]["problems"]
    assert "expected runtime params of kernel copy, got 'wrong'" in problem
    assert written["devices"][0]["used"] == []


def test_a_tuned_table_that_is_missing_is_told(tuned: Callable[[str], Path], run: Run) -> None:
    tuned("n").unlink()
    result = run("doctor")
    assert result.exit_code == 1
    assert "NOJIT_TUNING: expected a tuned table or a folder of them" in result.stderr
    assert "would use" not in result.stdout


def test_without_tuned_tables_nothing_is_said_of_them(machine: Callable[..., None], document: Document) -> None:
    machine()
    assert document("doctor")["tuning"] == {"places": "", "tables": [], "problems": []}


def test_an_older_version_beside_a_newer_one_is_used_for_nothing(
    machine: Callable[..., None], document: Document, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(90)
    on = TargetInfo("cuda", "sm_90", "sm_90a", 32)
    for version in ("1.9", "1.10"):
        make_bundle(tmp_path / f"{version}.nojit", kernel("copy", {"n": "i32"}, on=on), on=on, version=version)
    monkeypatch.setenv("NOJIT_BUNDLES", str(tmp_path))
    written = document("doctor")
    assert written["devices"][0]["used"] == [str(tmp_path / "1.10.nojit")]
    reason = f"1.10.nojit, a newer version, lies beside it; nojit clean {tmp_path} deletes the older"
    assert written["devices"][0]["rejected"] == [[str(tmp_path / "1.9.nojit"), reason]]
    assert f"{tmp_path / '1.9.nojit'}: {reason}" in run("doctor").stderr
