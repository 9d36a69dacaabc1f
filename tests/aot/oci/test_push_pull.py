"""Releases in registries: pushed, pulled, by tag and digest, for an arch or a machine, with their statements."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from nojit.aot.oci.release import ShippedBundle, ship
from nojit.aot.provenance.statement import statement_path
from nojit.aot.signing.shipped_bundles import VerifiedBundle
from nojit.runtime.trust.envelope import signed_path

from tests.aot.oci.conftest import files, public_key, state
from tests.support.registry import FakeRegistry

Run = Callable[..., Result]
Document = Callable[..., dict[str, Any]]
Make = Callable[..., Path]


def test_what_was_pushed_is_pulled(
    any_address: str, bundles: Make, run: Run, document: Document, tmp_path: Path
) -> None:
    made = bundles("sm_80", "sm_90a", "sm_100f", signer="release")
    pushed = document("push", any_address, made)
    assert [each["arch"] for each in pushed["bundles"]] == ["sm_80", "sm_90", "sm_100f"]
    assert pushed["statements"] == 6
    pulled = document("pull", any_address, "--arch", "all", "--out", tmp_path / "out")
    assert files(tmp_path / "out") == files(made)
    assert pulled["digest"] == pushed["digest"]
    assert [each["up_to_date"] for each in pulled["bundles"]] == [False] * 3


def test_a_digest_names_the_release_after_its_tag_has_moved(
    any_address: str, bundles: Make, document: Document, tmp_path: Path
) -> None:
    first = document("push", any_address, bundles("sm_90a"))
    second = document("push", any_address, bundles("sm_90a", version="1.1", folder="newer"))
    assert second["replaced"] == first["digest"] != second["digest"]
    by_digest = f"{any_address.rpartition(':')[0]}@{first['digest']}"
    pulled = document("pull", by_digest, "--arch", "sm_90", "--out", tmp_path / "out")
    assert [each["version"] for each in pulled["bundles"]] == ["1.0"]


def test_the_same_bundles_have_the_same_digest_wherever_they_lie(
    address: str, bundles: Make, document: Document, tmp_path: Path
) -> None:
    made = bundles("sm_90a", "sm_80")
    first = document("push", address, made)
    other = tmp_path / "elsewhere"
    shutil.copytree(made, other)
    for path in other.glob("*.json"):
        path.unlink()
    again = document("push", address, *sorted(other.glob("*.nojit"), reverse=True))
    assert again["digest"] == first["digest"]
    assert (again["sent_bytes"], again["replaced"]) == (0, None)


def test_a_release_is_signed_after_it_was_pushed(
    any_address: str, bundles: Make, run: Run, document: Document, tmp_path: Path
) -> None:
    made = bundles("sm_90a")
    (bundle,) = made.glob("*.nojit")
    first = document("push", any_address, made)
    key = public_key(tmp_path, "release")
    pull = ("pull", any_address, "--arch", "sm_90", "--trust", key, "--out", tmp_path / "out")
    assert "signed statement" in run(*pull, code=3).stderr
    assert not (tmp_path / "out" / bundle.name).exists()
    state(bundle, signer="release")
    assert document("push", any_address, made)["digest"] == first["digest"]
    (pulled,) = document(*pull)["bundles"]
    assert (pulled["signed_by"], pulled["build_number"]) == (str(key), 7)
    assert Path(pulled["statement"]).read_bytes() == Path(signed_path(str(bundle))).read_bytes()


def test_of_several_signatures_the_one_of_the_trusted_key_counts(
    any_address: str, bundles: Make, document: Document, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = bundles("sm_90a")
    (bundle,) = made.glob("*.nojit")
    with monkeypatch.context() as past:
        past.setattr("nojit.runtime.trust.policy.now", lambda: "2019-12-31T00:00:00Z")
        # the other key signs what looks newer
        for signer, build, expires in (("release", 7, ""), ("other", 9, ""), ("release", 8, "2020-01-01T00:00:00Z")):
            state(bundle, signer=signer, build=build, expires=expires)
            document("push", any_address, made)
    pull = ("pull", any_address, "--arch", "sm_90", "--out", tmp_path / "out", "--trust")
    (pulled,) = document(*pull, public_key(tmp_path, "release"))["bundles"]
    assert (pulled["build_number"], pulled["expires"]) == (7, "")
    (pulled,) = document(*pull, public_key(tmp_path, "other"))["bundles"]
    assert pulled["build_number"] == 9
    refused = document(*pull, public_key(tmp_path, "stranger"), code=3)["error"]
    assert refused["reason"] == "unknown-key"


def test_what_an_unchecked_signature_says_is_not_told(
    address: str, bundles: Make, run: Run, document: Document, tmp_path: Path
) -> None:
    made = bundles("sm_90a")
    (bundle,) = made.glob("*.nojit")
    state(bundle, signer="release", expires="2099-01-01T00:00:00Z")
    run("push", address, made)
    pull = ("pull", address, "--arch", "sm_90", "--out", tmp_path / "out")
    unchecked = run(*pull)
    assert "2099" not in unchecked.output
    assert "no signature checked: pass --trust KEY" in unchecked.stderr
    (pulled,) = document(*pull)["bundles"]
    assert (pulled["signed_by"], pulled["build_number"], pulled["expires"]) == ("", None, "")
    assert "build 7, until 2099-01-01T00:00:00Z" in run(*pull, "--trust", public_key(tmp_path, "release")).stdout


def test_this_machine_gets_what_its_devices_run(
    address: str, bundles: Make, run: Run, devices: Callable[..., None], tmp_path: Path
) -> None:
    run("push", address, bundles("sm_80", "sm_90a", "sm_100f", "sm_120a"))
    for number, (capabilities, archs) in enumerate(
        {
            (90,): ["sm_90"],
            (86,): ["sm_80"],
            (103,): ["sm_100f"],
            (90, 80, 90): ["sm_80", "sm_90"],
        }.items()
    ):
        devices(*capabilities)
        out = tmp_path / f"out{number}"
        run("pull", address, "--out", out)
        assert sorted(path.stem.rpartition("-")[2] for path in out.glob("*.nojit")) == archs
    devices(121)
    refused = run("pull", address, "--out", tmp_path / "none", code=4).stderr
    assert "expected a bundle that runs on sm_121, got bundles for sm_80, sm_90, sm_100f, sm_120" in refused
    # a Jetson shares no images with the others of its major version
    devices(87)
    assert "sm_87" in run("pull", address, "--out", tmp_path / "none", code=4).stderr
    devices()
    assert "pass --arch all, or one of sm_80" in run("pull", address, "--out", tmp_path / "none", code=4).stderr
    assert not (tmp_path / "none").exists()


def test_a_device_without_a_bundle_and_an_old_driver_are_warnings(
    address: str, bundles: Make, run: Run, devices: Callable[..., None], tmp_path: Path
) -> None:
    run("push", address, bundles("sm_90a"))
    devices(90, 75, driver=12040)
    shown = run("pull", address, "--arch", "native", "--out", tmp_path / "out").stderr
    assert "no bundle of the release runs on this machine's sm_75" in shown
    assert "needs a driver for CUDA 13.0 (580.65.06 or later); this one is for 12.4" in shown


def test_an_arch_gets_what_its_devices_run(
    address: str, bundles: Make, document: Document, run: Run, tmp_path: Path
) -> None:
    run("push", address, bundles("sm_80", "sm_90a", "sm_100f"))
    for arch, expected in {"sm_90": "sm_90", "sm_89": "sm_80", "sm_103": "sm_100f", "sm_100f": "sm_100f"}.items():
        (pulled,) = document("pull", address, "--arch", arch, "--out", tmp_path / arch)["bundles"]
        assert pulled["arch"] == expected
    assert "got bundles for sm_80, sm_90, sm_100f" in run("pull", address, "--arch", "sm_120", code=4).stderr


def test_the_bundles_of_several_names_are_one_release(
    address: str, bundles: Make, document: Document, tmp_path: Path
) -> None:
    made = bundles("sm_80", "sm_90a")
    bundles("sm_90a", name="more", version="2.0")
    document("push", address, made)
    pulled = document("pull", address, "--arch", "sm_90", "--out", tmp_path / "out")["bundles"]
    assert [(each["name"], each["arch"]) for each in pulled] == [("acme", "sm_90"), ("more", "sm_90")]


def test_a_second_push_sends_and_a_second_pull_reads_nothing(
    fake: FakeRegistry, bundles: Make, document: Document, tmp_path: Path
) -> None:
    made, address = bundles("sm_80", "sm_90a", signer="release"), f"oci://{fake.host}/acme:1.0"
    document("push", address, made)
    fake.log.clear()
    assert document("push", address, made)["sent_bytes"] == 0
    assert fake.requests("POST", "") == fake.requests("PUT", "") == []
    pull = ("pull", address, "--arch", "all", "--out", tmp_path / "out")
    document(*pull)
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("*.nojit")}
    fake.log.clear()
    assert [each["up_to_date"] for each in document(*pull)["bundles"]] == [True, True]
    # statements alone, which may be new
    assert len(fake.requests("GET", "/blobs/")) == 4
    assert {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("*.nojit")} == before


def test_a_pull_replaces_a_bundle_and_the_statements_of_the_old_one(
    address: str, bundles: Make, document: Document, run: Run, tmp_path: Path
) -> None:
    made = bundles("sm_90a")
    (bundle,) = made.glob("*.nojit")
    statement_path(bundle).unlink()
    run("push", address, made)
    out = bundles("sm_90a", name="other", signer="release", folder="out")
    for path in list(out.iterdir()):
        path.rename(out / path.name.replace("other", "acme"))
    run("pull", address, "--arch", "all", "--out", out)
    assert files(out) == files(made)


def test_only_the_newest_of_a_folder_is_pushed(address: str, bundles: Make, document: Document, run: Run) -> None:
    made = bundles("sm_90a")
    bundles("sm_90a", version="1.1")
    assert [each["version"] for each in document("push", address, made)["bundles"]] == ["1.1"]
    refused = run("push", address, made / "acme-1.0-sm_90.nojit", made / "../made/acme-1.0-sm_90.nojit")
    assert "1 bundle," in refused.stdout
    shutil.copytree(made, made.parent / "copy")
    twice = (made / "acme-1.0-sm_90.nojit", made.parent / "copy/acme-1.0-sm_90.nojit")
    assert "expected bundles of different names" in run("push", address, *twice, code=1).stderr


def test_a_damaged_bundle_or_statement_is_not_pushed(address: str, bundles: Make, run: Run) -> None:
    made = bundles("sm_90a", "sm_80")
    (first, second) = sorted(made.glob("*.nojit"))
    statement_path(first).write_bytes(statement_path(second).read_bytes())
    assert "expected the statement of bundle" in run("push", address, made, code=1).stderr
    statement_path(first).unlink()
    raw = bytearray(first.read_bytes())
    raw[-20] ^= 1
    first.write_bytes(raw)
    assert "SHA-256" in run("push", address, made, code=3).stderr
    assert "got none" in run("pull", address, "--arch", "all", code=1).stderr


def test_a_bundle_that_changes_during_a_push_is_not_pushed(
    address: str, bundles: Make, document: Document, fake: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = bundles("sm_90a")
    (bundle,) = made.glob("*.nojit")

    def ship_and_change(verified: VerifiedBundle) -> ShippedBundle:
        shipped = ship(verified)
        bundle.write_bytes(bundle.read_bytes()[:-1] + b"?")
        return shipped

    monkeypatch.setattr("nojit.aot.cli.commands.push.ship", ship_and_change)
    assert document("push", address, made, code=3)["error"]["reason"] == "digest"
    assert not any(raw.startswith(b"nojit") for raw in fake.blobs.values())


def test_names_of_tags_and_repositories_are_checked(run: Run, bundles: Make) -> None:
    made = bundles("sm_80")
    assert "neither a tag nor a digest" in run("push", "oci://localhost/acme", made, code=2).stderr
    assert "with a tag to push to" in run("push", f"oci://localhost/acme@sha256:{'0' * 64}", made, code=2).stderr
    shown = run("pull", "oci://me:hunter2@localhost/acme:1", code=2).stderr
    assert "without user and password" in shown
    assert "hunter2" not in shown


@pytest.mark.skipif(shutil.which("skopeo") is None, reason="skopeo is not installed: apt install skopeo")
def test_skopeo_copies_a_release_with_its_digest(
    debian_registry: str, bundles: Make, document: Document, run: Run, tmp_path: Path
) -> None:
    address = f"oci://{debian_registry}/skopeo/kernels:1.0"
    made = bundles("sm_80", "sm_90a")
    digest = document("push", address, made)["digest"]

    def skopeo(*words: str) -> str:
        done = subprocess.run(["skopeo", *words], capture_output=True, check=False, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    image = address.replace("oci:", "docker:")
    seen = json.loads(skopeo("inspect", "--raw", "--tls-verify=false", image))
    assert [each["annotations"]["nojit.arch"] for each in seen["manifests"]] == ["sm_80", "sm_90"]
    folder = tmp_path / "layout"
    skopeo("copy", "-q", "--all", "--preserve-digests", "--src-tls-verify=false", image, f"oci:{folder}:1.0")
    loaded = document("load", folder, "--arch", "all", "--out", tmp_path / "out")
    assert loaded["digest"] == digest
    assert [each["arch"] for each in loaded["bundles"]] == ["sm_80", "sm_90"]
    run("save", made, tmp_path / "saved")
    other = f"docker://{debian_registry}/skopeo/other:1.0"
    skopeo("copy", "-q", "--all", "--dest-tls-verify=false", f"oci:{tmp_path / 'saved'}:1.0", other)
    again = document("pull", other.replace("docker:", "oci:"), "--arch", "all", "--out", tmp_path / "again")
    assert again["digest"] == digest
