"""Layout folders: saved from registries and bundles, loaded into registries and folders."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from nojit.aot.oci.staging import PARTIAL

from tests.aot.oci.conftest import files, public_key, state
from tests.fakecuda.driver import FakeCuda
from tests.support.registry import FakeRegistry

Run = Callable[..., Result]
Document = Callable[..., dict[str, Any]]
Make = Callable[..., Path]


def test_a_release_is_carried_from_a_registry_to_another(
    any_address: str, bundles: Make, document: Document, tmp_path: Path
) -> None:
    made, folder = bundles("sm_80", "sm_90a", signer="release"), tmp_path / "folder"
    digest = document("push", any_address, made)["digest"]
    saved = document("save", any_address, folder)
    assert (saved["digest"], saved["tag"], saved["statements"]) == (digest, "1.0", 4)
    other = any_address.replace("acme/", "air-gapped/")
    loaded = document("load", folder, other)
    assert (loaded["digest"], loaded["statements"]) == (digest, 4)
    pull = ("pull", other, "--arch", "all", "--trust", public_key(tmp_path, "release"), "--out", tmp_path / "out")
    assert document(*pull)["digest"] == digest
    assert files(tmp_path / "out") == files(made)
    # nothing is copied twice
    assert document("save", any_address, folder)["sent_bytes"] == 0
    assert document("load", folder, other)["sent_bytes"] == 0


def test_bundles_are_carried_without_a_registry(
    bundles: Make, document: Document, devices: Callable[..., None], tmp_path: Path
) -> None:
    made, folder = bundles("sm_90a", "sm_100f", signer="release"), tmp_path / "folder"
    assert document("save", made, folder)["tag"] == "1.0"
    devices(103)
    loaded = document("load", folder, "--trust", public_key(tmp_path, "release"), "--out", tmp_path / "out")
    assert [(each["arch"], each["signed_by"] != "") for each in loaded["bundles"]] == [("sm_100f", True)]
    document("load", folder, "--arch", "all", "--out", tmp_path / "out")
    assert files(tmp_path / "out") == files(made)


def test_a_folder_is_an_oci_layout(bundles: Make, run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    run("save", bundles("sm_90a"), folder, "--tag", "stable")
    assert sorted(path.name for path in folder.iterdir()) == ["blobs", "index.json", "oci-layout"]
    assert json.loads((folder / "oci-layout").read_bytes()) == {"imageLayoutVersion": "1.0.0"}
    index = json.loads((folder / "index.json").read_bytes())
    names = [each.get("annotations", {}).get("org.opencontainers.image.ref.name") for each in index["manifests"]]
    assert names == [None, "stable"]
    for each in index["manifests"]:
        assert (folder / "blobs/sha256" / each["digest"][7:]).stat().st_size == each["size"]


def test_a_folder_holds_several_releases(bundles: Make, run: Run, document: Document, tmp_path: Path) -> None:
    folder, out = tmp_path / "folder", tmp_path / "out"
    first = document("save", bundles("sm_90a"), folder)
    second = document("save", bundles("sm_90a", version="2.0", folder="newer"), folder)
    load = ("load", folder, "--arch", "all", "--out", out)
    shown = run(*load, code=1).stderr
    assert "expected one release, got 1.0, 2.0" in shown
    assert "choose one with --tag" in shown
    for saved in (first, second):
        assert document(*load, "--tag", saved["tag"])["digest"] == saved["digest"]
    # a tag moves, as in a registry
    moved = document("save", bundles("sm_90a", version="2.0", folder="newer"), folder, "--tag", "1.0")
    assert document(*load, "--tag", "1.0")["digest"] == moved["digest"]


def test_a_later_signature_is_added(bundles: Make, document: Document, tmp_path: Path) -> None:
    made, folder = bundles("sm_90a"), tmp_path / "folder"
    first = document("save", made, folder)
    (bundle,) = made.glob("*.nojit")
    state(bundle, signer="release")
    assert document("save", made, folder)["digest"] == first["digest"]
    load = ("load", folder, "--arch", "all", "--out", tmp_path / "out", "--trust", public_key(tmp_path, "release"))
    assert document(*load)["bundles"][0]["build_number"] == 7


def test_a_release_saved_by_digest_has_no_tag(address: str, bundles: Make, document: Document, tmp_path: Path) -> None:
    digest = document("push", address, bundles("sm_90a"))["digest"]
    saved = document("save", f"{address.removesuffix(':1.0')}@{digest}", tmp_path / "folder")
    assert (saved["digest"], saved["tag"]) == (digest, "")
    assert document("load", tmp_path / "folder", address.replace("1.0", "2"))["digest"] == digest


def test_damaged_folders_are_refused(bundles: Make, document: Document, address: str, tmp_path: Path) -> None:
    made, folder = bundles("sm_90a"), tmp_path / "folder"
    document("save", made, folder)
    bundle = max((folder / "blobs/sha256").iterdir(), key=lambda path: path.read_bytes().startswith(b"nojit\r\n"))
    raw = bundle.read_bytes()
    bundle.write_bytes(raw[:-1] + b"?")
    load = ("load", folder, "--arch", "all", "--out", tmp_path / "out")
    assert document(*load, code=3)["error"]["reason"] == "digest"
    assert document("load", folder, address, code=3)["error"]["reason"] == "digest"
    # a second save replaces what is damaged
    assert document("save", made, folder)["sent_bytes"] == len(raw)
    document(*load)
    bundle.unlink()
    (tmp_path / "out").rename(tmp_path / "before")
    assert document(*load, code=1)["error"]["reason"] == "layout"
    for name, content in (
        ("index.json", b"[]"),
        ("index.json", b'{"manifests":[]}' + b" " * (4 << 20)),
        ("oci-layout", b'{"imageLayoutVersion":"2"}'),
        ("oci-layout", b"?"),
        ("oci-layout", b"[" * 100_000),
    ):
        (folder / name).write_bytes(content)
        document(*load, code=1)
    shutil.rmtree(folder / "blobs")
    (folder / "oci-layout").unlink()
    assert "got no oci-layout" in document(*load, code=1)["error"]["message"]


def test_a_folder_of_other_files_is_left_alone(bundles: Make, run: Run, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/notes.txt").write_text("keep")
    shown = run("save", bundles("sm_90a"), tmp_path / "mine", code=1).stderr
    assert "expected an OCI layout, or an empty folder, got a folder with notes.txt" in shown
    assert files(tmp_path / "mine") == {"notes.txt": b"keep"}


def test_an_interrupted_save_goes_on(
    address: str, bundles: Make, fake: FakeRegistry, document: Document, tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    document("push", address, bundles("sm_80", "sm_90a"))
    (bundle, _) = (digest for digest, raw in fake.blobs.items() if raw.startswith(b"nojit"))
    fake.fail("GET", f"/blobs/{bundle}", "500", times=99)
    document("save", address, folder, code=1)
    assert "got none" in document("load", folder, "--out", tmp_path / "out", code=1)["error"]["message"]
    fake.faults.clear()
    fake.log.clear()
    document("save", address, folder)
    assert not (folder / PARTIAL).exists()
    assert len(fake.requests("GET", f"/blobs/{bundle}")) == 1


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("save", "only"), "expected an address or bundles, and then the folder"),
        (("save", "a.nojit", "oci://localhost/acme:1"), "expected an address or bundles, and then the folder"),
        (("save", "oci://localhost/acme:1", "a.nojit", "folder"), "either one address or bundles"),
        (("save", "oci://localhost/acme", "folder"), "neither a tag nor a digest"),
        (("save", "a.nojit", "folder", "--tag", "-x"), "expected a tag"),
        (("load", "folder"), "either an address to push to or --out"),
        (("load", "folder", "oci://localhost/acme:1", "--out", "out"), "either an address to push to or --out"),
        (("load", "folder", "oci://localhost/acme:1", "--arch", "all"), "a release is pushed whole"),
        (("pull", "oci://localhost/acme:1", "--arch", "sm_9"), "--arch"),
    ],
)
def test_wrong_usage_is_told(words: tuple[str, ...], expected: str, run: Run) -> None:
    assert expected in run(*words, code=2).stderr


LOADS = """
import sys
from nojit.runtime import load

kernel = load(sys.argv[1]).kernel("add_acme")
for device in (0, 1):
    kernel.preload(device=device)
"""


def test_what_a_machine_gets_is_what_its_devices_load(
    bundles: Make, run: Run, fakecuda_library: FakeCuda, tmp_path: Path
) -> None:
    """With the driver of the tests, in processes of their own."""
    environment = os.environ | {"NOJIT_LIBCUDA": str(fakecuda_library.path), "FAKECUDA_DEVICES": "103,86"}
    folder, out = tmp_path / "folder", tmp_path / "out"
    run("save", bundles("sm_80", "sm_90a", "sm_100f"), folder)
    for words in (["-m", "nojit", "load", folder, "--out", out], ["-c", LOADS, out]):
        subprocess.run([sys.executable, *map(str, words)], check=True, env=environment)
    assert sorted(path.name for path in out.glob("*.nojit")) == ["acme-1.0-sm_100f.nojit", "acme-1.0-sm_80.nojit"]
