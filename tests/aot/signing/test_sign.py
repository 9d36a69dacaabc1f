"""Keys and signatures as `nojit sign` makes them, against securesystemslib and the runtime's own check."""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path

import pytest
from nojit.aot.provenance.statement import statement_path
from nojit.aot.signing.sign import make_key, read_signer, sign_bundle
from nojit.aot.signing.verify_signature import read_only_key, verify_signed
from nojit.runtime.bundle.file import BundleFile
from nojit.runtime.errors import BundleError, BundleIntegrityError, BundleTrustError, PackageError
from nojit.runtime.trust.envelope import signed_path
from nojit.runtime.trust.policy import check_signed

from tests.support.bundles import kernel, make_bundle
from tests.support.signing import Signer, envelope, make_statement

ADD = kernel("add", {"n": "i32"})


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    path = make_bundle(tmp_path / "a.nojit", ADD, name="acme")
    statement_path(path).write_text(json.dumps(make_statement(path, build_number=5), indent=1), encoding="utf-8")
    return path


@pytest.fixture
def key(tmp_path: Path) -> Path:
    return Path(make_key(tmp_path / "release.pem").private)


def test_what_is_signed_is_trusted(bundle: Path, key: Path) -> None:
    signed = sign_bundle(bundle, read_signer(key))
    trusted = read_only_key(key.with_name("release.pem.pub"))
    with BundleFile(bundle) as file:
        vouched = verify_signed(file, trusted)
        claim = vouched.claim
        assert check_signed(str(bundle), file.digest, trusted) == claim
        assert signed.digest == file.digest
    assert (claim.name, claim.build_number, claim.key_id) == ("acme", 5, signed.key_id)
    assert signed.statement == signed_path(str(bundle)) == str(vouched.statement.path)
    assert vouched.statement.document == make_statement(bundle, build_number=5)


def test_other_tools_take_the_envelope(bundle: Path, key: Path) -> None:
    from securesystemslib.dsse import Envelope

    signer = read_signer(key)
    sign_bundle(bundle, signer)
    document = json.loads(Path(signed_path(str(bundle))).read_bytes())
    envelope = Envelope.from_dict(document)
    assert envelope.verify([signer.public_key], 1)
    assert json.loads(envelope.payload) == json.loads(statement_path(bundle).read_bytes())


def test_signing_is_a_function_of_statement_and_key(bundle: Path, key: Path) -> None:
    sign_bundle(bundle, read_signer(key))
    first = Path(signed_path(str(bundle))).read_bytes()
    sign_bundle(bundle, read_signer(key))
    assert Path(signed_path(str(bundle))).read_bytes() == first


def test_it_signs_as_an_independent_signer_does(bundle: Path, tmp_path: Path) -> None:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    independent = Signer.of("one")
    path = tmp_path / "one.pem"
    path.write_bytes(independent.private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    signed = sign_bundle(bundle, read_signer(path))
    assert Path(signed.statement).read_bytes() == envelope(make_statement(bundle, build_number=5), independent)


def test_a_key_is_its_owners(tmp_path: Path) -> None:
    umask = os.umask(0)
    try:
        made = make_key(tmp_path / "a.pem")
    finally:
        os.umask(umask)
    assert stat.S_IMODE(Path(made.private).stat().st_mode) == 0o600
    assert Path(made.public).read_text().startswith("-----BEGIN PUBLIC KEY-----\n")
    before = Path(made.private).read_bytes()
    with pytest.raises(PackageError, match=r"expected to write a new key; .*, got File exists"):
        make_key(tmp_path / "a.pem")
    assert Path(made.private).read_bytes() == before


@pytest.mark.parametrize("nth", [1, 2])
def test_a_full_disk_leaves_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nth: int) -> None:
    synced: list[int] = []

    def sync(descriptor: int) -> None:
        synced.append(descriptor)
        if len(synced) == nth:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", sync)
    with pytest.raises(PackageError, match=r"expected to write a new key; .*, got No space left on device"):
        make_key(tmp_path / "a.pem")
    assert list(tmp_path.iterdir()) == []


def test_a_public_key_in_the_way_leaves_no_private_one(tmp_path: Path) -> None:
    (tmp_path / "a.pem.pub").write_text("another's")
    with pytest.raises(PackageError, match="got File exists"):
        make_key(tmp_path / "a.pem")
    assert [path.name for path in tmp_path.iterdir()] == ["a.pem.pub"]


def test_a_file_that_is_no_key_is_named_without_the_librarys_words(tmp_path: Path) -> None:
    (tmp_path / "a.pem").write_text("text\n")
    with pytest.raises(PackageError, match="expected an Ed25519 private key in PEM, got something else - at"):
        read_signer(tmp_path / "a.pem", None)


def test_a_key_can_be_encrypted(tmp_path: Path) -> None:
    made = make_key(tmp_path / "a.pem", b"secret")
    assert read_signer(Path(made.private), b"secret").public_key.keyid == made.key_id
    for password in (None, b"wrong"):
        with pytest.raises(PackageError, match="expected an Ed25519 private key in PEM"):
            read_signer(Path(made.private), password)
    open_key = make_key(tmp_path / "b.pem")
    with pytest.raises(PackageError, match="expected an Ed25519 private key in PEM"):
        read_signer(Path(open_key.private), b"secret")


def test_what_is_no_key_is_refused(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    with pytest.raises(PackageError, match="expected a private key, got No such file"):
        read_signer(tmp_path / "none.pem")
    path = tmp_path / "x.pem"
    path.write_bytes(X25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    with pytest.raises(
        PackageError,
        match="expected an Ed25519 private key: create one with nojit sign --new-key, got X25519PrivateKey",
    ):
        read_signer(path)
    with pytest.raises(BundleTrustError, match=r"expected a public key in PEM.*got a private key"):
        read_only_key(path)


def test_only_a_whole_bundle_is_signed(bundle: Path, key: Path) -> None:
    content = bytearray(bundle.read_bytes())
    content[-1] ^= 1
    bundle.write_bytes(content)
    with pytest.raises(BundleError):
        sign_bundle(bundle, read_signer(key))
    assert not Path(signed_path(str(bundle))).exists()


def test_only_the_statement_of_the_bundle_is_signed(bundle: Path, key: Path) -> None:
    signed = Path(sign_bundle(bundle, read_signer(key)).statement)
    before = signed.read_bytes()
    place = statement_path(bundle)
    other = make_bundle(bundle.with_name("b.nojit"), kernel("mul", {"n": "i32"}))
    subject = make_statement(bundle)["subject"][0]
    wrong_file = subject | {"digest": subject["digest"] | {"sha256": "0" * 64}}
    for statement, reason in (
        (make_statement(other), "other-bundle"),
        (make_statement(bundle, predicate=make_statement(other)["predicate"]), "other-bundle"),
        (make_statement(bundle, subject=[wrong_file]), "other-bundle"),
        ({"_type": "another"}, "statement"),
    ):
        place.write_text(json.dumps(statement))
        with pytest.raises(BundleTrustError) as error:
            sign_bundle(bundle, read_signer(key))
        assert error.value.reason == reason
    place.unlink()
    with pytest.raises(PackageError, match="which nojit build writes"):
        sign_bundle(bundle, read_signer(key))
    assert signed.read_bytes() == before


def test_a_byte_behind_the_digests_reach_is_found(bundle: Path, key: Path) -> None:
    sign_bundle(bundle, read_signer(key))
    trusted = read_only_key(key.with_name("release.pem.pub"))
    with BundleFile(bundle) as file:
        content = bytearray(bundle.read_bytes())
        content[-1] ^= 1
        bundle.write_bytes(content)
        # the index, and so the digest, is what it was
        with pytest.raises(BundleTrustError, match="expected a file with SHA-256"):
            verify_signed(file, trusted)
        with pytest.raises(BundleIntegrityError):
            file.verify()
