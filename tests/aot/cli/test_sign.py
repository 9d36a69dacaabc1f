"""`nojit sign`, and `nojit verify` with keys and with sources."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from nojit.aot.provenance.statement import statement_path
from nojit.runtime import loader
from nojit.runtime.errors import BundleTrustError
from nojit.runtime.trust.envelope import signed_path

from tests.aot.cli.conftest import Run
from tests.aot.fake_compiler import FakeCompiler
from tests.support.signing import Signer, envelope, make_statement

Document = Callable[..., dict[str, Any]]


@pytest.fixture
def stated(bundle: Path) -> Path:
    """A bundle with a statement."""
    statement_path(bundle).write_text(json.dumps(make_statement(bundle, build_number=3)), encoding="utf-8")
    return bundle


@pytest.fixture
def key(run: Run, tmp_path: Path) -> Path:
    assert run("sign", "--new-key", tmp_path / "release.pem").exit_code == 0
    return tmp_path / "release.pem"


def test_sign_and_verify(run: Run, document: Document, stated: Path, key: Path) -> None:
    result = run("sign", "--key", key, stated)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith(f"SIGNED  {stated}")
    assert "build 3" in result.stdout
    public = f"{key}.pub"
    result = run("verify", "--key", public, stated)
    assert result.exit_code == 0
    assert f"signed by {public}, build 3" in result.stdout
    (one,) = document("verify", "--key", public, stated.parent)["bundles"]
    assert (one["signed_by"], one["build_number"], one["rebuilt"]) == (public, 3, False)
    (plain,) = document("verify", stated)["bundles"]
    assert (plain["signed_by"], plain["build_number"]) == (None, None)


@pytest.mark.parametrize("dirty", [False, True])
def test_sources_with_changes_are_warned_of(run: Run, bundle: Path, key: Path, dirty: bool) -> None:
    statement = make_statement(bundle)
    source = {"name": "source", "digest": {"gitCommit": "c" * 40}, "annotations": {"dirty": dirty}}
    statement["predicate"]["buildDefinition"]["resolvedDependencies"] = [source]
    statement["predicate"]["runDetails"] = {
        "builder": {"id": "x:y"},
        "metadata": {"finishedOn": "2026-01-02T03:04:05Z"},
    }
    statement_path(bundle).write_text(json.dumps(statement), encoding="utf-8")
    result = run("sign", "--key", key, bundle)
    assert result.exit_code == 0
    assert result.stderr == (f"built from a checkout with uncommitted changes: {bundle}\n" if dirty else "")


@pytest.mark.parametrize("name", ['my"key.pem', "back\\slash.pem", "line\nend.pem", "\xfc.pem"])
def test_a_new_key_may_be_called_anything(run: Run, stated: Path, tmp_path: Path, name: str) -> None:
    result = run("sign", "--new-key", tmp_path / name, stated)
    assert result.exit_code == 0
    keys = tmp_path / "trusted.toml"
    keys.write_text(result.stdout, encoding="utf-8")
    assert run("verify", "--trusted-keys", keys, stated).exit_code == 0


def test_a_damaged_bundle_leaves_no_key_and_no_signature(run: Run, stated: Path, tmp_path: Path) -> None:
    whole = stated.with_name("a-whole.nojit")
    whole.write_bytes(stated.read_bytes())
    statement_path(whole).write_text(json.dumps(make_statement(whole)), encoding="utf-8")
    stated.write_bytes(stated.read_bytes()[:-1] + b"\0")
    assert run("sign", "--new-key", tmp_path / "new.pem", whole, stated).exit_code == 3
    assert not (tmp_path / "new.pem").exists()
    assert not Path(signed_path(str(whole))).exists()


def test_a_key_has_a_name(run: Run) -> None:
    result = run("sign", "--new-key", ".")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "expected a file name for the new key" in result.stderr


def test_a_password_may_be_any_bytes(run: Run, stated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOJIT_KEY_PASSWORD", os.fsdecode(b"\xff"))
    assert run("sign", "--new-key", tmp_path / "new.pem", stated).exit_code == 0
    assert run("sign", "--key", tmp_path / "new.pem", stated).exit_code == 0
    monkeypatch.setenv("NOJIT_KEY_PASSWORD", "x" * 2000)
    result = run("sign", "--new-key", tmp_path / "other.pem", stated)
    assert (result.exit_code, (tmp_path / "other.pem").exists()) == (1, False)
    assert "expected a valid password for keys" in result.stderr


def test_what_a_new_key_prints_is_a_file_of_trusted_keys(
    run: Run, stated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = run("sign", "--new-key", tmp_path / "release.pem", stated)
    assert result.exit_code == 0
    assert "is the private key" in result.stderr
    assert "SIGNED" in result.stderr
    keys = tmp_path / "trusted.toml"
    keys.write_text(result.stdout, encoding="utf-8")
    assert run("verify", "--trusted-keys", keys, stated).exit_code == 0
    monkeypatch.setenv("NOJIT_TRUST", "signed")
    monkeypatch.setenv("NOJIT_TRUSTED_KEYS", str(keys))
    assert loader.load(stated).kernels
    keys.write_text(f"{keys.read_text()}\n[minimum]\ntest = 4\n", encoding="utf-8")
    with pytest.raises(BundleTrustError, match="expected build 4 of test"):
        loader.load(stated)


def test_sign_json(document: Document, stated: Path, tmp_path: Path) -> None:
    made = document("sign", "--new-key", tmp_path / "a.pem")
    assert made["bundles"] == []
    signed = document("sign", "--key", made["key"]["private"], stated)
    assert signed["key"] is None
    assert signed["bundles"][0]["key_id"] == made["key"]["key_id"]


def test_an_unsigned_bundle_fails_to_verify(run: Run, document: Document, stated: Path, key: Path) -> None:
    result = run("verify", "--key", f"{key}.pub", stated)
    assert result.exit_code == 3
    assert "FAILED" in result.stderr
    (one,) = document("verify", "--key", f"{key}.pub", stated, code=3)["bundles"]
    assert one["error"]["type"] == "BundleTrustError"
    assert one["error"]["reason"] == "unsigned"


def test_an_encrypted_key(run: Run, stated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOJIT_KEY_PASSWORD", "secret")
    assert run("sign", "--new-key", tmp_path / "a.pem").exit_code == 0
    assert run("sign", "--key", tmp_path / "a.pem", stated).exit_code == 0
    monkeypatch.setenv("NOJIT_KEY_PASSWORD", "")
    result = run("sign", "--key", tmp_path / "a.pem", stated)
    assert result.exit_code == 1
    assert "expected an Ed25519 private key in PEM, and NOJIT_KEY_PASSWORD to be its password" in result.stderr
    monkeypatch.setenv("NOJIT_KEY_PASSWORD", "wrong")
    assert "NOJIT_KEY_PASSWORD" in run("sign", "--key", tmp_path / "a.pem", stated).stderr


# of the password "secret"; by that of the test below it decrypts to bytes whose padding is right
ENCRYPTED = """\
-----BEGIN ENCRYPTED PRIVATE KEY-----
MIGjMF8GCSqGSIb3DQEFDTBSMDEGCSqGSIb3DQEFDDAkBBDM2AYd16rV7kd9ELLK
odJcAgIIADAMBggqhkiG9w0CCQUAMB0GCWCGSAFlAwQBKgQQsaSw8VgYquhiDXZt
9AwV2wRA+B68UlHco9IWmyQVs0yniUC2AORF26inDMbfvxI5WYnBP53UEv7SaUE5
nyQEMxv1X163bQVrCTvLR7fegC+NIQ==
-----END ENCRYPTED PRIVATE KEY-----
"""


def test_a_wrong_password_is_told_as_one_though_the_padding_is_right(
    run: Run, stated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = tmp_path / "a.pem"
    key.write_text(ENCRYPTED, encoding="ascii")
    key.chmod(0o600)
    monkeypatch.setenv("NOJIT_KEY_PASSWORD", "secret")
    assert run("sign", "--key", key, stated).exit_code == 0
    monkeypatch.setenv("NOJIT_KEY_PASSWORD", "wrong 235")
    result = run("sign", "--key", key, stated)
    assert result.exit_code == 1
    assert "and NOJIT_KEY_PASSWORD to be its password if it is encrypted" in result.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "either --key or --new-key"),
        (["--key", "a", "--new-key", "b"], "either --key or --new-key"),
        (["--key", "a"], "expected bundles to sign"),
    ],
)
def test_wrong_usage(run: Run, words: list[str], said: str) -> None:
    result = run("sign", *words)
    assert result.exit_code == 2
    assert said in result.stderr


def test_verify_takes_one_kind_of_trust(run: Run, bundle: Path, tmp_path: Path) -> None:
    assert run("verify", bundle, "--key", "a", "--trusted-keys", "b").exit_code == 2
    result = run("verify", bundle, "--key", tmp_path / "none")
    assert result.exit_code == 1
    assert f"expected a public key, got No such file or directory - at {tmp_path / 'none'}" in result.stderr
    assert run("verify", bundle, "--key", bundle).exit_code == 1
    result = run("verify", bundle, "--trusted-keys", tmp_path / "none")
    assert result.exit_code == 1
    assert "expected a TOML file of trusted keys, got No such file or directory" in result.stderr


def test_verify_without_the_extra_exits_1(run: Run, stated: Path, key: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.asymmetric.ed25519", None)
    result = run("verify", stated, "--key", f"{key}.pub")
    assert result.exit_code == 1
    assert "nojit[trust]" in result.stderr


def test_build_sign_verify_rebuild(
    run: Run, document: Document, use_compiler: Callable[..., FakeCompiler], manifest: Path, key: Path
) -> None:
    use_compiler()
    out = manifest.parent / "out"
    words = ("--out", out, "--jobs", 1, "--build-number", 12, "--builder", "https://ci.example")
    assert run("build", manifest, *words).exit_code == 0
    (bundle,) = out.glob("*.nojit")
    statement = json.loads(statement_path(bundle).read_bytes())["predicate"]
    assert statement["runDetails"]["builder"]["id"] == "https://ci.example"
    # images of the fake compiler are none that a verification takes
    assert run("sign", "--key", key, bundle).exit_code == 3
    assert document("verify", bundle, "--rebuild", "--sources", manifest.parent, "-j", 1, code=3)["bundles"]


def test_with_a_key_what_was_signed_is_built_again(
    run: Run, use_compiler: Callable[..., FakeCompiler], stated: Path, key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_compiler()
    built: list[Any] = []
    monkeypatch.setattr("nojit.aot.signing.rebuild.rebuild", lambda *given: built.append(given[-1]))
    assert run("sign", "--key", key, stated).exit_code == 0
    verify = ("verify", stated, "--rebuild", "--sources", stated.parent, "-j", 1)
    assert run(*verify).exit_code == 0
    assert run(*verify, "--key", f"{key}.pub").exit_code == 0
    plain, signed = built
    assert plain is None
    assert (str(signed.path), signed.document) == (signed_path(str(stated)), make_statement(stated, build_number=3))
    # nothing is built of what another key signed
    assert run("sign", "--new-key", stated.with_name("other.pem"), stated).exit_code == 0
    assert run(*verify, "--key", f"{key}.pub").exit_code == 3
    assert len(built) == 2


def test_building_again_changes_no_statement_but_of_another_number(
    run: Run, use_compiler: Callable[..., FakeCompiler], manifest: Path
) -> None:
    use_compiler()
    out = manifest.parent / "out"

    def build(number: int) -> bytes:
        assert run("build", manifest, "--out", out, "--jobs", 1, "--build-number", number).exit_code == 0
        (place,) = out.glob("*.provenance.json")
        return place.read_bytes()

    first = build(1)
    assert build(1) == first
    second = build(2)
    assert json.loads(second)["predicate"]["buildDefinition"]["internalParameters"]["buildNumber"] == 2


@pytest.mark.parametrize("builder", ["not a uri", "ci.example", ""])
def test_a_builder_is_a_uri(run: Run, use_compiler: Callable[..., FakeCompiler], manifest: Path, builder: str) -> None:
    use_compiler()
    refused = run("build", manifest, "--out", manifest.parent / "out", "--builder", builder)
    assert refused.exit_code == 2
    assert f"expected a URI such as https://ci.example/kernels, got {builder!r}" in " ".join(refused.stderr.split())
    assert not (manifest.parent / "out").exists()


def test_inspect_says_where_a_bundle_came_from(
    run: Run, document: Document, use_compiler: Callable[..., FakeCompiler], manifest: Path
) -> None:
    use_compiler()
    out = manifest.parent / "out"
    words = ("--out", out, "--jobs", 1, "--build-number", 12, "--builder", "https://ci.example")
    assert run("build", manifest, *words).exit_code == 0
    (bundle,) = out.glob("*.nojit")
    said = document("inspect", bundle)["provenance"]
    assert (said["describes"], said["build_number"], said["builder"], said["signed"]) == (
        True,
        12,
        "https://ci.example",
        False,
    )
    assert "build 12 by https://ci.example" in run("inspect", bundle).stdout
    place = statement_path(bundle)
    place.write_bytes(place.read_bytes().replace(b'"nojitIndex": "', b'"nojitIndex": "0'))
    assert not document("inspect", bundle)["provenance"]["describes"]
    assert "the statement next to it belongs to another bundle" in run("inspect", bundle).stdout
    place.write_text("{}")
    assert run("inspect", bundle).exit_code == 1
    place.unlink()
    assert document("inspect", bundle)["provenance"] is None
    assert "built from" not in run("inspect", bundle).stdout


def sign(bundle: Path) -> None:
    """Sign a bundle's statement, whatever its images are."""
    statement = json.loads(statement_path(bundle).read_bytes())
    Path(signed_path(str(bundle))).write_bytes(envelope(statement, Signer.of("release")))


def other(bundle: Path) -> dict[str, Any]:
    """A statement of another bundle."""
    digest = {"sha256": "1" * 64, "nojitIndex": "0" * 64}
    return make_statement(bundle, subject=[{"name": bundle.name, "digest": digest}])


def good_but(bundle: Path, **changes: Any) -> bytes:
    """An envelope of a statement that is the bundle's, some fields aside."""
    return envelope(make_statement(bundle, **changes), Signer.of("x"))


def test_inspect_says_signed_of_this_bundle_alone(
    run: Run, document: Document, use_compiler: Callable[..., FakeCompiler], manifest: Path
) -> None:
    use_compiler()
    assert run("build", manifest, "--out", manifest.parent / "out", "--jobs", 1).exit_code == 0
    (stated,) = (manifest.parent / "out").glob("*.nojit")
    sign(stated)
    assert document("inspect", stated)["provenance"]["signed"]
    assert ", signed" in run("inspect", stated).stdout
    # what was signed counts, whatever the statement that anybody can write says
    unsigned = statement_path(stated)
    unsigned.write_bytes(unsigned.read_bytes().replace(b'"buildNumber": 0', b'"buildNumber": 99'))
    assert "build 0 by" in run("inspect", stated).stdout
    content = unsigned.read_bytes()
    unsigned.unlink()
    assert document("inspect", stated)["provenance"]["signed"]
    unsigned.write_bytes(content)
    place = Path(signed_path(str(stated)))
    good = place.read_bytes()
    for raw, why in (
        (b"", "expected a signed statement of nojit sign"),
        (good[:-2], "expected a signed statement of nojit sign"),
        (envelope(other(stated), Signer.of("x")), "got one of 000000000000"),
        (envelope(b"[" * 100_000, Signer.of("x")), "expected a signed statement of nojit sign"),
        (good_but(stated, predicate=1.5), "expected a signed statement of nojit sign"),
    ):
        place.write_bytes(raw)
        said = document("inspect", stated)["provenance"]
        assert said["signed"] is False
        assert why in said["signed_problem"]
        shown = run("inspect", stated)
        assert "invalid signature" in shown.stdout
        assert why in shown.stderr


def test_build_names_the_signed_statement_of_an_older_bundle(
    run: Run, use_compiler: Callable[..., FakeCompiler], manifest: Path
) -> None:
    use_compiler()
    out = manifest.parent / "out"
    build = ("build", manifest, "--out", out, "--jobs", 1)
    assert run(*build).exit_code == 0
    (stated,) = out.glob("*.nojit")
    sign(stated)
    assert "signed statement" not in run(*build).stderr
    said = run(*build, "--build-number", 8).stderr
    assert "expected a signed statement of build 8, got one of build 0: sign it again" in said
    manifest.write_text(manifest.read_text(encoding="utf-8").replace('"neg"', '"negate"'), encoding="utf-8")
    result = run(*build)
    assert result.exit_code == 0
    assert "sign it again with nojit sign, or delete the file" in result.stderr


def test_a_bundle_that_is_not_there_is_named_itself(run: Run, tmp_path: Path, key: Path) -> None:
    absent = tmp_path / "absent.nojit"
    result = run("sign", "--key", key, absent)
    assert result.exit_code == 1
    assert result.stderr == f"error: expected a bundle file, got no such file or directory - at {absent}\n"


def test_what_is_wrong_with_a_statement_names_its_file(run: Run, stated: Path, key: Path) -> None:
    statement_path(stated).write_text(json.dumps(other(stated)), encoding="utf-8")
    result = run("sign", "--key", key, stated)
    assert result.exit_code == 3
    assert f"at {statement_path(stated)}; copy the bundle and its statement again" in result.stderr


def test_a_damaged_statement_does_not_make_the_bundle_fail(run: Run, stated: Path) -> None:
    statement_path(stated).write_text("{", encoding="utf-8")
    assert run("inspect", stated).exit_code == 1


def test_no_key_is_made_where_there_is_nothing_for_it_to_sign(run: Run, bundle: Path, tmp_path: Path) -> None:
    result = run("sign", "--new-key", tmp_path / "new.pem", bundle)
    assert result.exit_code == 1
    assert "expected the bundle's provenance statement" in result.stderr
    assert list(tmp_path.glob("new.pem*")) == []


# -- how long a signature counts ---------------------------------------------------------------------------------------


def moment(**ahead: int) -> str:
    return (datetime.now(UTC) + timedelta(**ahead)).strftime("%Y-%m-%dT%H:%M:%SZ")


MOMENTS = {
    "9999-01-01": "9999-01-01T00:00:00Z",
    "9999-01-01T12:30:00Z": "9999-01-01T12:30:00Z",
    "9999-01-01T12:30:00+02:00": "9999-01-01T10:30:00Z",
}


@pytest.mark.parametrize("given", MOMENTS)
def test_a_signature_may_expire(run: Run, document: Document, stated: Path, key: Path, given: str) -> None:
    until = MOMENTS[given]
    unsigned = statement_path(stated).read_bytes()
    shown = run("sign", "--key", key, stated, "--expires", given)
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert f"build 3, until {until}, in " in shown.stdout
    assert f"build 3, until {until}" in run("verify", "--key", f"{key}.pub", stated).stdout
    assert document("verify", "--key", f"{key}.pub", stated)["bundles"][0]["expires"] == until
    # what the build says stays as it is, and signing without says never
    assert statement_path(stated).read_bytes() == unsigned
    assert document("sign", "--key", key, stated)["bundles"][0]["expires"] == ""
    assert document("verify", "--key", f"{key}.pub", stated)["bundles"][0]["expires"] is None


@pytest.mark.parametrize(("words", "ahead"), [("90d", {"days": 90}), ("12h", {"hours": 12}), ("8w", {"weeks": 8})])
def test_it_may_count_for_a_while(
    document: Document, stated: Path, key: Path, words: str, ahead: dict[str, int]
) -> None:
    before = moment(**ahead)
    (one,) = document("sign", "--key", key, stated, "--valid-for", words)["bundles"]
    assert before <= one["expires"] <= moment(**ahead)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--expires", "9999-01-01", "--valid-for", "1d"), "expected only one of --expires and --valid-for"),
        (("--expires", "2001-01-01"), "--expires: expected a moment in the future, got 2001-01-01T00:00:00Z"),
        (("--valid-for", "0d"), "--valid-for: expected a moment in the future"),
        *(
            (("--expires", text), f"expected a day or a moment in UTC such as 2027-01-01 .* got '{text}'")
            for text in ("soon", "9999-13-01", "9999-01-01T12:00:00", "01.01.9999", "9999-01-01 12:00")
        ),
        *(
            (("--valid-for", text), f"expected 90d, 12h or 8w, got '{text}'")
            for text in ("d", "-1d", "90", "1y", "1.5d", "99999999999d", "9999999d", " ")
        ),
    ],
)
def test_a_moment_that_is_none_is_wrong_usage(
    run: Run, stated: Path, key: Path, words: tuple[str, ...], said: str
) -> None:
    result = run("sign", "--key", key, stated, *words)
    assert result.exit_code == 2
    assert re.search(said, " ".join(result.stderr.split()))
    assert not Path(signed_path(str(stated))).exists()


def test_an_expired_signature_is_refused_wherever_it_counts(
    run: Run, document: Document, stated: Path, tmp_path: Path
) -> None:
    signer = Signer.of("release")
    public = tmp_path / "release.pub"
    public.write_text(signer.pem)
    public.chmod(0o644)
    expired = make_statement(stated, metadata={"nojit_expiresOn": "2001-02-03T04:05:06Z"})
    Path(signed_path(str(stated))).write_bytes(envelope(expired, signer))
    (one,) = document("verify", "--key", public, stated, code=3)["bundles"]
    assert one["error"]["reason"] == "expired"
    assert "sign the bundle again, got one that was until 2001-02-03T04:05:06Z" in one["error"]["message"]
    # nothing was signed that the bytes do not say
    assert document("verify", stated)["bundles"][0]["expires"] is None
    packed = run("wheel", stated, "--out", tmp_path / "dist")
    assert packed.exit_code == 3
    assert "got one that was until 2001-02-03T04:05:06Z" in packed.stderr
    assert not (tmp_path / "dist").exists()


def test_other_tools_read_a_statement_that_expires(run: Run, stated: Path, key: Path) -> None:
    """It is the statement that lies there and one field more, in an envelope as ever."""
    dsse, signing = pytest.importorskip("securesystemslib.dsse"), pytest.importorskip("securesystemslib.signer")
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    assert run("sign", "--key", key, stated, "--expires", "9999-01-01").exit_code == 0
    whole = dsse.Envelope.from_dict(json.loads(Path(signed_path(str(stated))).read_bytes()))
    public = load_pem_public_key(Path(f"{key}.pub").read_bytes())
    (key_id,) = whole.signatures
    assert whole.verify([signing.SSlibKey.from_crypto(public, keyid=key_id)], 1)
    said, plain = json.loads(whole.payload), json.loads(statement_path(stated).read_bytes())
    assert said["predicate"].pop("runDetails") == {"metadata": {"nojit_expiresOn": "9999-01-01T00:00:00Z"}}
    assert said == plain


@pytest.mark.parametrize("option", [("--expires", "9999-01-01"), ("--valid-for", "90d")])
def test_a_new_key_does_not_expire(run: Run, tmp_path: Path, option: tuple[str, str]) -> None:
    result = run("sign", "--new-key", tmp_path / "key.pem", *option)
    assert result.exit_code == 2
    assert f"expected bundles to sign with {option[0]}: a key does not expire" in result.stderr
    assert not (tmp_path / "key.pem").exists()


def test_inspect_says_until_when_a_signature_counts(
    run: Run, document: Document, use_compiler: Callable[..., FakeCompiler], manifest: Path
) -> None:
    use_compiler()
    assert run("build", manifest, "--out", manifest.parent / "out", "--jobs", 1).exit_code == 0
    (stated,) = (manifest.parent / "out").glob("*.nojit")
    sign(stated)
    assert document("inspect", stated)["provenance"]["expires"] == ""
    statement = json.loads(statement_path(stated).read_bytes())
    statement["predicate"]["runDetails"]["metadata"]["nojit_expiresOn"] = "9999-01-01T00:00:00Z"
    Path(signed_path(str(stated))).write_bytes(envelope(statement, Signer.of("release")))
    assert document("inspect", stated)["provenance"]["expires"] == "9999-01-01T00:00:00Z"
    assert ", signed until 9999-01-01T00:00:00Z (signature not checked)" in run("inspect", stated).stdout
