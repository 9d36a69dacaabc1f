"""Registries that fail, lie, refuse or lack features; interrupted runs; full disks."""

from __future__ import annotations

import base64
import errno
import hashlib
import io
import json
import os
import random
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import Result
from nojit.aot.cli.options.registries import open_repository
from nojit.aot.oci.address import parse_address
from nojit.aot.oci.pull import Received, receive
from nojit.aot.oci.release import BUNDLE, read_release
from nojit.aot.oci.staging import PARTIAL

from tests.aot.oci.conftest import FAST, files
from tests.support.bundles import kernel, make_bundle
from tests.support.registry import FakeRegistry, serve

Run = Callable[..., Result]
Document = Callable[..., dict[str, Any]]
Make = Callable[..., Path]


@pytest.fixture
def pushed(address: str, bundles: Make, run: Run, fake: FakeRegistry) -> tuple[str, Path]:
    """The address of a release with one bundle, and the folder of the bundle."""
    made = bundles("sm_90a", signer="release")
    run("push", address, made)
    fake.log.clear()
    return address, made


def pull(address: str, folder: Path) -> list[Received]:
    """Pull every bundle of a release, without the command line."""
    where = parse_address(address)
    repository = open_repository(where, insecure=False)
    offers = read_release(repository, where.reference, address).offers
    return receive(repository, offers, folder, None, lambda _: None)


def blob_of(fake: FakeRegistry) -> str:
    """Return the digest of the bundle in a registry."""
    (found,) = {
        layer["digest"]
        for _, raw in fake.manifests.values()
        for layer in json.loads(raw).get("layers", [])
        if layer["mediaType"] == BUNDLE
    }
    return str(found)


@pytest.mark.parametrize("kind", ["500", "503", "429", "hang up"])
def test_passing_failures_are_tried_again(
    kind: str, fake: FakeRegistry, bundles: Make, run: Run, tmp_path: Path
) -> None:
    made, address = bundles("sm_90a", signer="release"), f"oci://{fake.host}/acme:1.0"
    for method, path in (("HEAD", "/blobs/"), ("POST", "/uploads/"), ("PUT", "/uploads/"), ("PUT", "/manifests/")):
        fake.fail(method, path, kind, times=2, Retry_After="0")
    run("push", address, made)
    for path in ("/manifests/1.0", "/manifests/sha256:", "/blobs/", "/referrers/"):
        fake.fail("GET", path, kind, times=2, Retry_After="0")
    run("pull", address, "--arch", "all", "--out", tmp_path / "out")
    assert files(tmp_path / "out") == files(made)
    assert not any(each.times for each in fake.faults)


def test_a_lasting_failure_says_what_the_registry_answers(
    pushed: tuple[str, Path], fake: FakeRegistry, document: Document, tmp_path: Path
) -> None:
    fake.fail("GET", "/blobs/", "500", times=99)
    error = document("pull", pushed[0], "--arch", "all", "--out", tmp_path / "out", code=1)["error"]
    assert error["reason"] == "unavailable"
    assert "500 Internal Server Error: FAULT fault, at each of 3 tries" in error["message"]
    assert "run the command again: it continues where it stopped" in error["message"]
    assert len(fake.requests("GET", "/blobs/")) == FAST.tries


def test_a_registry_that_does_not_answer_is_given_up(
    pushed: tuple[str, Path], fake: FakeRegistry, document: Document, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nojit.aot.cli.options.registries.LIMITS", replace(FAST, read_s=0.05, tries=2))
    fake.fail("GET", "/manifests/", "stall", times=99)
    error = document("pull", pushed[0], "--arch", "all", code=1)["error"]
    assert (error["reason"], "no answer in time" in error["message"]) == ("unavailable", True)


@pytest.mark.parametrize("fault", [("drip", "/blobs/"), ("drip content", "/blobs/"), ("drip content", "/manifests/")])
def test_a_registry_that_drips_is_given_up(
    fault: tuple[str, str],
    pushed: tuple[str, Path],
    fake: FakeRegistry,
    document: Document,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kind, path = fault
    # each byte comes in time
    monkeypatch.setattr("nojit.aot.cli.options.registries.LIMITS", replace(FAST, read_s=0.2, tries=2))
    fake.fail("GET", path, kind, times=99)
    error = document("pull", pushed[0], "--arch", "all", code=1)["error"]
    assert error["reason"] == "unavailable"
    assert re.search(r"an answer that trickles, \d+ bytes in 0\.\d+ s, at each of 2 tries", error["message"])
    assert len(fake.requests("GET", path)) == 2


@pytest.mark.parametrize("ranges", [True, False])
def test_a_broken_download_goes_on(
    ranges: bool, pushed: tuple[str, Path], fake: FakeRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nojit.aot.oci.client._CHUNK_BYTES", 8)
    fake.ranges = ranges
    size = len(fake.blobs[blob_of(fake)])
    fake.fail("GET", f"/blobs/{blob_of(fake)}", "cut", times=2)
    pull(pushed[0], tmp_path / "out")
    assert files(tmp_path / "out") == files(pushed[1])
    # in whole chunks; without ranges each try starts at the beginning
    first, second = size // 2, size // 2 + (size - size // 2) // 2
    assert fake.ranged == [f"bytes={at // 8 * 8}-" for at in (first, second if ranges else first)]


def test_an_interrupted_pull_goes_on_and_leaves_nothing_half_written(
    pushed: tuple[str, Path], fake: FakeRegistry, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nojit.aot.oci.client._CHUNK_BYTES", 8)
    out, digest = tmp_path / "out", blob_of(fake)
    fake.fail("GET", f"/blobs/{digest}", "cut")
    fake.fail("GET", f"/blobs/{digest}", "500", times=99)
    run("pull", pushed[0], "--arch", "all", "--out", out, code=1)
    assert [path.name for path in out.iterdir()] == [PARTIAL]
    half = (out / PARTIAL / f"{digest[7:]}.part").stat().st_size
    assert half == len(fake.blobs[digest]) // 2
    fake.faults.clear()
    fake.ranged.clear()
    run("pull", pushed[0], "--arch", "all", "--out", out)
    assert fake.ranged == [f"bytes={half}-"]
    assert files(out) == files(pushed[1])


DIES = """
import os, signal, sys
from nojit.aot.cli.group import cli
from nojit.aot.oci.client import Client

whole = Client.chunks

def chunks(*args):
    for number, chunk in enumerate(whole(*args)):
        if number == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        yield chunk

Client.chunks = chunks
cli.main(sys.argv[1:])
"""


def test_a_killed_pull_goes_on(fake: FakeRegistry, run: Run, tmp_path: Path) -> None:
    made, out, address = tmp_path / "made", tmp_path / "out", f"oci://{fake.host}/acme:1.0"
    made.mkdir()
    # what does not compress: several chunks
    noise = (("noise", random.Random(0).randbytes(300_000)),)
    make_bundle(made / "acme-1.0-sm_90.nojit", kernel("add", {"n": "i32"}), name="acme", attachments=noise)
    run("push", address, made)
    words = ("pull", address, "--arch", "all", "--out", out)
    done = subprocess.run([sys.executable, "-c", DIES, *map(str, words)], check=False, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert [path.name for path in out.iterdir()] == [PARTIAL]
    run(*words)
    assert fake.ranged == [f"bytes={2 << 16}-"]
    assert files(out) == files(made)


def test_a_damaged_rest_of_an_earlier_pull_is_read_again(
    pushed: tuple[str, Path], fake: FakeRegistry, run: Run, tmp_path: Path
) -> None:
    out, digest = tmp_path / "out", blob_of(fake)
    for rest in (b"x" * 100, b"x" * 10_000):
        (out / PARTIAL).mkdir(parents=True)
        (out / PARTIAL / f"{digest[7:]}.part").write_bytes(rest)
        run("pull", pushed[0], "--arch", "all", "--out", out)
        assert files(out) == files(pushed[1])
        for path in out.iterdir():
            path.unlink()


def test_an_interrupted_push_does_not_send_again_what_is_there(
    fake: FakeRegistry, address: str, bundles: Make, run: Run, document: Document
) -> None:
    made = bundles("sm_80", "sm_90a")
    fake.fail("PUT", "/manifests/1.0", "500", times=99)
    run("push", address, made, code=1)
    # without its tag there is no release
    assert "got none" in run("pull", address, "--arch", "all", code=1).stderr
    fake.faults.clear()
    fake.log.clear()
    assert document("push", address, made)["sent_bytes"] == 0
    assert fake.requests("PUT", "/uploads/") == []


def test_an_upload_whose_answer_was_lost_is_not_sent_again(
    fake: FakeRegistry, address: str, bundles: Make, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.support import registry

    store = registry._Handler.blobs_put

    def store_and_hang_up(handler: Any) -> None:
        handler.wfile, wire = io.BytesIO(), handler.wfile
        store(handler)
        handler.wfile, handler.close_connection = wire, True

    monkeypatch.setattr(registry._Handler, "blobs_put", store_and_hang_up)
    made = bundles("sm_90a")
    run("push", address, made)
    uploads = fake.requests("PUT", "/uploads/")
    assert len(uploads) == len({each.rpartition("digest=")[2] for each in uploads}) == 3


@pytest.mark.parametrize("kind", ["manifests/1.0", "manifests/sha256:", "blobs/"])
def test_tampered_content_is_refused(
    kind: str, pushed: tuple[str, Path], fake: FakeRegistry, document: Document, tmp_path: Path
) -> None:
    fake.fail("GET", f"/{kind}", "tamper", times=99)
    error = document("pull", pushed[0], "--arch", "all", "--out", tmp_path / "out", code=3)["error"]
    assert error["reason"] == "digest"
    assert not (tmp_path / "out").exists() or not any((tmp_path / "out").iterdir())


def test_a_release_that_lies_about_its_bundle_is_refused(
    pushed: tuple[str, Path], fake: FakeRegistry, document: Document, tmp_path: Path
) -> None:
    media_type, raw = fake.manifests["acme/kernels", "1.0"]
    for found, lie in (
        (b'"1.0"', b'"1.1"'),
        (b'"sm_90"', b'"sm_80"'),
        (b'"13000"', b'"12000"'),
        (b'"sm_90a"', b'"sm_90"'),
    ):
        assert found in raw
        fake.put_manifest("acme/kernels", "lie", media_type, raw.replace(found, lie))
        address = pushed[0].replace(":1.0", ":lie")
        error = document("pull", address, "--arch", "all", "--out", tmp_path / "out", code=3)["error"]
        assert error["reason"] == "digest"
        assert "expected the bundle that the release describes" in error["message"]
    twice = json.loads(raw)
    twice["manifests"] *= 2
    for lies in (raw.replace(b'"acme"', b'"../acme"'), json.dumps(twice).encode()):
        fake.put_manifest("acme/kernels", "lie", media_type, lies)
        assert document("pull", address, "--arch", "all", code=1)["error"]["reason"] == "not-ours"
    assert not any((tmp_path / "out").iterdir())


def test_a_statement_of_another_bundle_is_refused(
    pushed: tuple[str, Path], fake: FakeRegistry, bundles: Make, document: Document, tmp_path: Path
) -> None:
    other = bundles("sm_80", folder="other", signer="release")
    document("push", pushed[0].replace(":1.0", ":2"), other)
    ours, theirs = (
        {
            json.loads(raw)["subject"]["digest"]
            for _, raw in fake.manifests.values()
            if "subject" in json.loads(raw) and f"sm_{arch}" in raw.decode()
        }.pop()
        for arch in (90, 80)
    )
    for media_type, raw in list(fake.manifests.values()):
        if theirs.encode() in raw and b"dsse" in raw:
            fake.put_manifest("acme/kernels", "forged", media_type, raw.replace(theirs.encode(), ours.encode()))
    # the right one is there as well
    document("pull", pushed[0], "--arch", "all", "--out", tmp_path / "out")
    assert files(tmp_path / "out") == files(pushed[1])
    for key, (_, raw) in list(fake.manifests.items()):
        if ours.encode() in raw and b"dsse" in raw and key[1] != "forged" and b"sm_90" in raw:
            del fake.manifests[key]
    error = document("pull", pushed[0], "--arch", "all", "--out", tmp_path / "none", code=1)["error"]
    assert "expected a signed statement of bundle" in error["message"]


def test_statements_that_somebody_deleted_are_left_out(bundles: Make, document: Document, tmp_path: Path) -> None:
    with serve(referrers=False) as fake:
        made, address = bundles("sm_90a", signer="release"), f"oci://{fake.host}/acme:1.0"
        document("push", address, made)
        for key, (_, raw) in list(fake.manifests.items()):
            if b"dsse" in raw and b"subject" in raw:
                del fake.manifests[key]
        (pulled,) = document("pull", address, "--arch", "all", "--out", tmp_path / "out")["bundles"]
        assert pulled["statement"] == ""
        assert document("save", address, tmp_path / "saved")["statements"] == 1


def test_manifests_of_other_tools_are_carried_along(
    pushed: tuple[str, Path], fake: FakeRegistry, document: Document, tmp_path: Path
) -> None:
    _, raw = fake.manifests["acme/kernels", "1.0"]
    subject = json.loads(raw)["manifests"][0]
    fake.blobs[f"sha256:{hashlib.sha256(b'sbom').hexdigest()}"] = b"sbom"
    layer = {"mediaType": "text/spdx", "digest": f"sha256:{hashlib.sha256(b'sbom').hexdigest()}", "size": 4}
    manifest = "application/vnd.oci.image.manifest.v1+json"
    for name, more in (("sbom", {"layers": [layer]}), ("odd", {"manifests": [subject]})):
        said = {"mediaType": manifest, "artifactType": f"application/{name}", "subject": subject, **more}
        fake.put_manifest("acme/kernels", name, manifest, json.dumps(said).encode())
    assert document("save", pushed[0], tmp_path / "saved")["statements"] == 3
    loaded = document("load", tmp_path / "saved", pushed[0].replace("acme/", "other/"))
    assert loaded["statements"] == 3
    assert any(key[0] == "other/kernels" and b"text/spdx" in raw for key, (_, raw) in fake.manifests.items())


def test_a_full_disk_is_told_and_the_pull_goes_on(
    pushed: tuple[str, Path], fake: FakeRegistry, document: Document, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, pull = tmp_path / "out", ("pull", pushed[0], "--arch", "all", "--out", tmp_path / "out")
    with monkeypatch.context() as full:
        full.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=10))
        error = document(*pull, code=1)["error"]
        assert (error["reason"], error["got"]) == ("disk", "10")
        assert "bytes of free disk space" in error["message"]
    with monkeypatch.context() as full:
        full.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))))
        error = document(*pull, code=1)["error"]
        assert (error["reason"], error["got"]) == ("disk", "No space left on device")
        assert "it continues where it stopped" in error["message"]
    assert list(out.glob("*.nojit")) == []
    document(*pull)
    assert files(out) == files(pushed[1])


def test_nothing_is_written_through_a_link(pushed: tuple[str, Path], document: Document, tmp_path: Path) -> None:
    elsewhere, out = tmp_path / "elsewhere", tmp_path / "out"
    elsewhere.mkdir()
    out.mkdir()
    (out / PARTIAL).symlink_to(elsewhere)
    error = document("pull", pushed[0], "--arch", "all", "--out", out, code=1)["error"]
    assert error["reason"] == "disk"
    assert "got a symbolic link" in error["message"]
    assert not any(elsewhere.iterdir())


def test_a_statement_is_one_file(
    pushed: tuple[str, Path], fake: FakeRegistry, document: Document, tmp_path: Path
) -> None:
    ((media_type, raw),) = (each for each in fake.manifests.values() if b"dsse" in each[1] and b"subject" in each[1])
    said = json.loads(raw)
    said["layers"] *= 3
    fake.put_manifest("acme/kernels", "swollen", media_type, json.dumps(said).encode())
    fake.log.clear()
    document("pull", pushed[0], "--arch", "all", "--out", tmp_path / "out")
    # once for the manifest that push wrote
    assert len(fake.requests("GET", f"/blobs/{said['layers'][0]['digest']}")) == 1


def test_an_unwritable_folder_is_told(pushed: tuple[str, Path], document: Document, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    error = document("pull", pushed[0], "--arch", "all", "--out", tmp_path / "file", code=1)["error"]
    assert (error["reason"], error["got"]) == ("disk", "a file")
    assert "free space" not in error["message"]


def test_what_is_not_there_is_told(pushed: tuple[str, Path], document: Document) -> None:
    for address in (
        pushed[0].replace(":1.0", ":2.0"),
        pushed[0].replace("kernels:1.0", "nothing:1.0"),
        f"{pushed[0].removesuffix(':1.0')}@sha256:{'0' * 64}",
    ):
        error = document("pull", address, "--arch", "all", code=1)["error"]
        assert (error["reason"], error["got"], error["where"]) == ("not-found", "none", address)


@pytest.mark.parametrize(
    "said",
    [
        {
            "config": {
                "mediaType": "application/vnd.oci.image.config.v1+json",
                "digest": f"sha256:{'0' * 64}",
                "size": 2,
            }
        },
        {"manifests": []},
        {"schemaVersion": 1, "fsLayers": []},
        {"manifests": [], "annotations": {"nojit.release": "2"}},
        {"layers": [{"mediaType": "x", "digest": "sha512:00", "size": 2}]},
        [],
    ],
)
def test_a_tag_that_is_something_else_is_neither_pulled_nor_replaced(
    said: Any, fake: FakeRegistry, bundles: Make, address: str, document: Document
) -> None:
    fake.put_manifest("acme/kernels", "1.0", "application/vnd.oci.image.index.v1+json", json.dumps(said).encode())
    error = document("pull", address, "--arch", "all", code=1)["error"]
    assert error["reason"] == "not-ours"
    before = fake.manifests["acme/kernels", "1.0"]
    assert document("push", address, bundles("sm_90a"), code=1)["error"]["reason"] == "not-ours"
    assert fake.manifests["acme/kernels", "1.0"] == before


def test_a_refusal_is_told_with_and_without_credentials(
    fake: FakeRegistry, address: str, bundles: Make, document: Document, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = bundles("sm_90a")
    fake.user = "ci:hunter2"
    error = document("push", address, made, code=1)["error"]
    assert error["reason"] == "denied"
    assert "401" in error["message"]
    assert "log in with docker login" in error["message"]
    monkeypatch.setenv("ORAS_USER", "ci")
    monkeypatch.setenv("ORAS_PASS", "wrong-password")
    wrong = json.dumps(document("push", address, made, code=1))
    assert '"denied"' in wrong
    assert "wrong-password" not in wrong
    assert base64.b64encode(b"ci:wrong-password").decode() not in wrong
    monkeypatch.setenv("ORAS_PASS", "hunter2")
    fake.may_push = False
    error = document("push", address, made, code=1)["error"]
    assert (error["reason"], "with the configured credentials, got 403" in error["message"]) == ("denied", True)


@pytest.mark.parametrize("basic", [True, False])
def test_a_user_of_dockers_config_pushes_and_pulls(
    basic: bool, fake: FakeRegistry, bundles: Make, run: Run, tmp_path: Path
) -> None:
    address = f"oci://{fake.host}/acme:1.0"
    fake.user, fake.basic = "ci:hunter2", basic
    config = tmp_path / "home/.docker/config.json"
    config.parent.mkdir(parents=True)
    config.write_text(json.dumps({"auths": {fake.host: {"auth": base64.b64encode(b"ci:hunter2").decode()}}}))
    made = bundles("sm_90a")
    run("push", address, made)
    run("pull", address, "--arch", "all", "--out", tmp_path / "out")
    assert files(tmp_path / "out") == files(made)
    # the password goes to the token server alone
    basics = [each for each in fake.sent if each.startswith("Basic")]
    assert (len(basics) == len(fake.sent)) == basic
    assert len(fake.requests("GET", "/token")) == (0 if basic else 3)


def test_an_identity_token_gets_access_tokens(
    fake: FakeRegistry, address: str, bundles: Make, run: Run, tmp_path: Path
) -> None:
    fake.user = "token-of-a-login"
    config = tmp_path / "home/.docker/config.json"
    config.parent.mkdir(parents=True)
    config.write_text(json.dumps({"auths": {fake.host: {"identitytoken": fake.user}}}))
    run("push", address, bundles("sm_90a"))
    assert fake.requests("POST", "/token")


def test_a_token_that_has_expired_is_renewed(
    fake: FakeRegistry, address: str, bundles: Make, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.user = "ci:hunter2"
    monkeypatch.setenv("ORAS_USER", "ci")
    monkeypatch.setenv("ORAS_PASS", "hunter2")
    # forget tokens while contents are uploaded
    fake.fail(
        "POST",
        "/uploads/",
        "401",
        WWW_Authenticate=f'Bearer realm="http://{fake.host}/token",scope="repository:acme/kernels:pull,push"',
    )
    run("push", address, bundles("sm_90a"))


def test_a_registry_that_cannot_be_reached_is_told(document: Document) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        error = document("pull", f"oci://127.0.0.1:{taken.getsockname()[1]}/acme:1", code=1)["error"]
    assert (error["reason"], "connection refused" in error["message"]) == ("unavailable", True)
    error = document("pull", "oci://no-such-host.invalid/acme:1", code=1)["error"]
    assert (error["reason"], "no host of this name" in error["message"]) == ("unavailable", True)


def test_http_without_tls_needs_a_permission(
    pushed: tuple[str, Path], fake: FakeRegistry, document: Document, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # as if it were on another machine
    monkeypatch.setattr("nojit.aot.oci.address.Address.is_local", property(lambda _: False))
    error = document("pull", pushed[0], "--arch", "all", code=1)["error"]
    assert (error["reason"], error["got"]) == ("plain-http", "an answer without TLS")
    assert "--insecure" in error["message"]
    document("pull", pushed[0], "--arch", "all", "--insecure", "--out", tmp_path / "out")


@contextmanager
def tls_server(folder: Path) -> Iterator[int]:
    """Serve TLS with a certificate that nobody trusts; yield the port."""
    from datetime import UTC, datetime, timedelta

    x509 = pytest.importorskip("cryptography.x509")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    made = made.serial_number(1).not_valid_before(now - timedelta(1)).not_valid_after(now + timedelta(1))
    pem = made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "server.pem").write_bytes(pem + private)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem")
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            try:
                connection, _ = listener.accept()
                with connection, context.wrap_socket(connection, server_side=True):
                    pass
            except OSError:
                pass

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        thread.join()


def test_a_certificate_that_nobody_trusts_is_told(
    document: Document, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("nojit.aot.oci.address.Address.is_local", property(lambda _: False))
    with tls_server(tmp_path) as port:
        error = document("pull", f"oci://127.0.0.1:{port}/acme:1", code=1)["error"]
    assert (error["reason"], "self" in error["got"]) == ("tls", True)
    assert "REQUESTS_CA_BUNDLE" in error["message"]


def test_a_statement_that_another_push_replaced_is_listed_again(bundles: Make, run: Run, tmp_path: Path) -> None:
    with serve(referrers=False) as fake:
        made, address = bundles("sm_90a", signer="release"), f"oci://{fake.host}/acme:1.0"
        put = fake.put_manifest
        # another program replaces the list of statements once
        lost = []

        def lose(repository: str, tag: str, media_type: str, raw: bytes) -> str:
            digest = put(repository, tag, media_type, raw)
            if tag.startswith("sha256-") and not lost:
                lost.append(tag)
                del fake.manifests[repository, tag]
            return digest

        fake.put_manifest = lose  # type: ignore[method-assign]
        run("push", address, made)
        assert lost
        run("pull", address, "--arch", "all", "--out", tmp_path / "out")
        assert files(tmp_path / "out") == files(made)


def test_pulls_into_one_folder_take_turns(pushed: tuple[str, Path], tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        pulled = pool.map(lambda _: pull(pushed[0], tmp_path / "out"), range(4))
    assert sorted(each.up_to_date for (each,) in pulled) == [False, True, True, True]
    assert files(tmp_path / "out") == files(pushed[1])
