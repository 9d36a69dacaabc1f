"""Who may make what is loaded: the policy, trusted keys, and every way in which a signed statement is refused."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from nojit.runtime import loader
from nojit.runtime.errors import BundleError, BundleTrustError
from nojit.runtime.trust.envelope import encode_envelope, pre_authentication, signed_path
from nojit.runtime.trust.policy import check_signed
from nojit.runtime.trust.reasons import REASONS
from nojit.runtime.trust.trusted_keys import key_id, read_public_key, read_trusted_keys

from tests.fakecuda import FakeCuda
from tests.support.bundles import Parts, compress, kernel, make_bundle
from tests.support.signing import Signer, envelope, make_statement, trusted_keys

ADD = kernel("add", {"n": "i32"})
RELEASE, OTHER = Signer.of("release"), Signer.of("other")

Sign = Callable[..., Path]


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return make_bundle(tmp_path / "a.nojit", ADD, name="acme")


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    return trusted_keys(tmp_path / "trusted.toml", RELEASE)


@pytest.fixture
def signed(monkeypatch: pytest.MonkeyPatch, keys: Path) -> Path:
    """Ask for signed bundles; returns the file of trusted keys."""
    monkeypatch.setenv("NOJIT_TRUST", "signed")
    monkeypatch.setenv("NOJIT_TRUSTED_KEYS", str(keys))
    return keys


def sign(bundle: Path, signer: Signer = RELEASE, **facts: Any) -> Path:
    path = Path(signed_path(str(bundle)))
    path.write_bytes(envelope(make_statement(bundle, **facts), signer))
    return path


def refused(bundle: Path, reason: str, match: str = ".") -> None:
    with pytest.raises(BundleTrustError, match=match) as error:
        loader.load(bundle)
    assert error.value.reason == reason
    assert reason in REASONS
    assert isinstance(error.value, BundleError)


@pytest.mark.usefixtures("signed")
def test_a_signed_bundle_launches(bundle: Path, fakecuda: FakeCuda) -> None:
    sign(bundle)
    with loader.load(bundle) as opened:
        opened.kernel("add")[(1,)](1)
    assert fakecuda.launch_count() == 1


@pytest.mark.parametrize("policy", [None, "any"])
def test_any_bundle_is_loaded_where_nobody_asks(
    bundle: Path, monkeypatch: pytest.MonkeyPatch, policy: str | None
) -> None:
    monkeypatch.delenv("NOJIT_TRUST", raising=False)
    if policy is not None:
        monkeypatch.setenv("NOJIT_TRUST", policy)
    # a broken statement is nobody's business then
    Path(signed_path(str(bundle))).write_bytes(b"no statement")
    assert loader.load(bundle).kernels == ("add",)


@pytest.mark.usefixtures("signed")
def test_a_bundle_without_a_statement_is_refused(bundle: Path) -> None:
    refused(bundle, "unsigned", match=r"expected a signed statement beside the bundle, got no .*a\.intoto\.jsonl")


@pytest.mark.usefixtures("signed")
def test_one_unsigned_bundle_of_a_folder_refuses_the_folder(bundle: Path) -> None:
    sign(bundle)
    other = make_bundle(bundle.with_name("b.nojit"), kernel("mul", {"n": "i32"}))
    refused(bundle.parent, "unsigned")
    sign(other)
    assert loader.load(bundle.parent).kernels == ("add", "mul")


@pytest.mark.usefixtures("signed")
def test_a_statement_that_cannot_be_read_is_none(bundle: Path) -> None:
    place = Path(signed_path(str(bundle)))
    place.mkdir()
    refused(bundle, "unsigned", match=r"got a folder, not a regular file - at .*a\.intoto\.jsonl")
    place.rmdir()
    # nobody writes into it, and nobody waits for that
    os.mkfifo(place)
    refused(bundle, "unsigned", match="got a FIFO, not a regular file")


@pytest.mark.parametrize("each", ["", 'bundles = ["other"]'])
@pytest.mark.usefixtures("signed")
def test_a_statement_of_another_name_is_refused(bundle: Path, signed: Path, each: str) -> None:
    trusted_keys(signed, RELEASE, each=each, more="[minimum]\nacme = 7")
    for name, version in (("other", "1.0"), ("acme", "9.9")):
        statement = make_statement(bundle, build_number=7)
        statement["predicate"]["buildDefinition"]["externalParameters"]["bundle"] = {"name": name, "version": version}
        sign(bundle, **statement)
        refused(bundle, "key-scope" if each and name == "acme" else "other-bundle")


@pytest.mark.parametrize("name", ["Acme", "ACME"])
def test_a_name_counts_however_it_is_spelled(bundle: Path, signed: Path, name: str) -> None:
    sign(bundle, build_number=6)
    trusted_keys(signed, RELEASE, each=f'bundles = ["{name}"]', more=f"[minimum]\n{name} = 7")
    refused(bundle, "rolled-back", match="expected build 7 of acme")
    trusted_keys(signed, RELEASE, each=f'bundles = ["{name}"]', more=f"[minimum]\n{name} = 6")
    assert loader.load(bundle).kernels == ("add",)


@pytest.mark.usefixtures("signed")
def test_another_key_is_refused(bundle: Path) -> None:
    sign(bundle, OTHER)
    refused(bundle, "unknown-key", match=r"expected a signature by a key in .*trusted\.toml: release \([0-9a-f]{12}\)")
    # nor does it help to say that another signed
    Path(signed_path(str(bundle))).write_bytes(envelope(make_statement(bundle), OTHER, key_id=RELEASE.key_id))
    refused(bundle, "signature", match="expected a signature of key 'release'")


@pytest.mark.usefixtures("signed")
def test_the_statement_of_another_bundle_is_refused(bundle: Path) -> None:
    other = make_bundle(bundle.with_name("b.nojit"), kernel("mul", {"n": "i32"}))
    shutil.copy(sign(other), signed_path(str(bundle)))
    refused(bundle, "other-bundle", match=r"expected a statement of bundle [0-9a-f]{12}, got one of [0-9a-f]{12}")


def test_an_older_build_is_refused(bundle: Path, signed: Path) -> None:
    trusted_keys(signed, RELEASE, more="[minimum]\nacme = 7")
    sign(bundle, build_number=6)
    refused(bundle, "rolled-back", match="expected build 7 of acme or a later one, as .* says, got build 6")
    sign(bundle, build_number=7)
    assert loader.load(bundle).kernels == ("add",)
    trusted_keys(signed, RELEASE, more="[minimum]\nanother = 9")
    sign(bundle)
    assert loader.load(bundle).kernels == ("add",)


def test_a_key_signs_the_bundles_that_it_may(bundle: Path, signed: Path) -> None:
    sign(bundle)
    trusted_keys(signed, RELEASE, each='bundles = ["another", "third"]')
    refused(bundle, "key-scope", match="expected key 'release' to sign only another, third, got acme")
    trusted_keys(signed, RELEASE, each="bundles = []")
    refused(bundle, "key-scope", match="expected key 'release' to sign only nothing")
    trusted_keys(signed, RELEASE, each='bundles = ["another", "acme"]')
    assert loader.load(bundle).kernels == ("add",)


def test_each_of_several_keys_counts(bundle: Path, signed: Path) -> None:
    trusted_keys(signed, OTHER, RELEASE)
    for signer in (RELEASE, OTHER):
        sign(bundle, signer)
        assert loader.load(bundle).kernels == ("add",)


# -- how long a signature counts ---------------------------------------------------------------------------------------

PAST, TO_COME = "2001-02-03T04:05:06Z", "9999-12-31T23:59:59Z"


@pytest.mark.usefixtures("signed")
def test_a_signature_counts_until_it_expires(bundle: Path) -> None:
    sign(bundle, metadata={"nojit_expiresOn": TO_COME, "finishedOn": PAST})
    assert loader.load(bundle).kernels == ("add",)
    sign(bundle, metadata={"nojit_expiresOn": PAST})
    refused(
        bundle,
        "expired",
        match=r"expected a statement that is valid at \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ, as this machine's clock says; "
        f"sign the bundle again, got one that was until {PAST} - at ",
    )


@pytest.mark.usefixtures("signed")
def test_it_ends_with_the_second_that_it_names(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the system's real-time clock, in UTC, whatever the time zone."""
    monkeypatch.setenv("TZ", "America/Anchorage")
    time.tzset()
    try:
        moment = 1_000_000_000
        sign(bundle, metadata={"nojit_expiresOn": "2001-09-09T01:46:40Z"})
        monkeypatch.setattr(time, "gmtime", lambda *given, plain=time.gmtime: plain(*given or (moment,)))
        refused(bundle, "expired")
        moment -= 1
        assert loader.load(bundle).kernels == ("add",)
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.usefixtures("signed")
def test_what_is_loaded_stays_loaded(bundle: Path, fakecuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    sign(bundle, metadata={"nojit_expiresOn": TO_COME})
    with loader.load(bundle) as opened:
        sign(bundle, metadata={"nojit_expiresOn": PAST})
        opened.kernel("add")[(1,)](1)
    assert fakecuda.launch_count() == 1


NO_MOMENTS = [
    *(None, "", 1, True, ["9999-12-31T23:59:59Z"], "never"),
    *("9999-12-31", "9999-12-31T23:59:59", "9999-12-31T23:59:59+00:00", "99991231T235959Z"),
    *("9999-12-31 23:59:59Z", "9999-12-31T23:59:59.0Z", "\u0669999-12-31T23:59:59Z"),
    *("9999-13-31T23:59:59Z", "9999-02-30T00:00:00Z", "9999-12-31T24:00:00Z", "9999-12-31T23:59:60Z"),
]


@pytest.mark.usefixtures("signed")
@pytest.mark.parametrize("moment", NO_MOMENTS)
def test_a_moment_has_one_spelling(bundle: Path, moment: object) -> None:
    """A time that is not understood would otherwise be none, or never come."""
    sign(bundle, metadata={"nojit_expiresOn": moment})
    refused(bundle, "statement", match="expected a moment such as 2027-01-01T00:00:00Z for nojit_expiresOn, got ")


@pytest.mark.usefixtures("signed")
@pytest.mark.parametrize("details", [None, {}, {"metadata": None}, {"metadata": {}}, [], "x"])
def test_a_statement_that_names_no_moment_never_expires(bundle: Path, details: object) -> None:
    statement = make_statement(bundle)
    statement["predicate"]["runDetails"] = details
    Path(signed_path(str(bundle))).write_bytes(envelope(statement, RELEASE))
    assert loader.load(bundle).kernels == ("add",)


WRONG: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda raw: b"",
    "no line end": lambda raw: raw[:-1],
    "two lines": lambda raw: raw + raw,
    "a space": lambda raw: raw.replace(b'":', b'": ', 1),
    "another order": lambda raw: raw.replace(b'"keyid"', b'"sig"', 1),
    "no signature": lambda raw: raw[: raw.index(b"[") + 1] + b"]}\n",
    "two signatures": lambda raw: raw.replace(b"]}\n", b"," + raw[raw.index(b"[") + 1 :]),
    "another type of payload": lambda raw: raw.replace(b"in-toto", b"in-tote"),
    "no base64": lambda raw: raw.replace(b'"payload":"', b'"payload":"*', 1),
    "url-safe base64": lambda raw: (
        raw.replace(b"/", b"_").replace(b"application_", b"application/").replace(b"+", b"-")
    ),
    "upper-case key id": lambda raw: raw.replace(RELEASE.key_id.encode(), RELEASE.key_id.upper().encode()),
    "base64 of the same bytes": lambda raw: raw[: raw.rindex(b"==") - 1] + b"B" + raw[raw.rindex(b"==") :],
    "a short signature": lambda raw: raw[: raw.rindex(b'"sig":"') + 7] + b'AAAA"}]}\n',
    "too long": lambda raw: raw.replace(b'"payload":"', b'"payload":"' + b"AAAA" * (1 << 20), 1),
}


@pytest.mark.usefixtures("signed")
@pytest.mark.parametrize("wrong", WRONG)
def test_an_envelope_has_one_spelling(bundle: Path, wrong: str) -> None:
    path = sign(bundle)
    raw = path.read_bytes()
    path.write_bytes(WRONG[wrong](raw))
    assert path.read_bytes() != raw
    refused(bundle, "envelope")


def test_base64_padding_bits_are_of_the_spelling(bundle: Path) -> None:
    # 64 bytes leave 4 bits in the last digit that decoders drop
    raw = sign(bundle).read_bytes()
    last = raw[raw.rindex(b"==") - 1]
    assert last in b"AQgw"


@pytest.mark.usefixtures("signed")
@pytest.mark.parametrize(
    "change",
    [
        {"_type": "https://in-toto.io/Statement/v2"},
        {"predicateType": "https://slsa.dev/provenance/v2"},
        {"subject": []},
        {"subject": [{}, {}]},
        {"subject": [{"digest": {"sha256": "0" * 64}}]},
        {"subject": {"digest": {}}},
        {"predicate": None},
        {"predicate": {"buildDefinition": {"externalParameters": {"bundle": {"name": 1, "version": "1"}}}}},
    ],
)
def test_what_is_signed_must_be_a_statement(bundle: Path, change: dict[str, Any]) -> None:
    sign(bundle, **change)
    refused(bundle, "statement")


@pytest.mark.usefixtures("signed")
@pytest.mark.parametrize("payload", [b"", b"{}", b"[]", b"no JSON", b'{"a":1,"a":1}', b'{"a": 1}', b"[" * 100_000])
def test_a_trusted_key_that_signs_nonsense_is_refused(bundle: Path, payload: bytes) -> None:
    Path(signed_path(str(bundle))).write_bytes(envelope(payload, RELEASE))
    refused(bundle, "statement")


@pytest.mark.usefixtures("signed")
@pytest.mark.parametrize("number", [True, "7", None, 7.5])
def test_a_build_number_is_an_int(bundle: Path, number: object) -> None:
    sign(bundle, build_number=number)
    refused(bundle, "statement")


@pytest.mark.usefixtures("signed")
def test_nothing_of_the_index_is_parsed_before_the_signature_is_checked(bundle: Path) -> None:
    # right lengths and hashes around what no parser would take, and a frame that is none
    parts = Parts.of(ADD, name="acme")
    for content in (
        parts.seal(edit=lambda part, raw: b"no JSON" if part == "index" else raw),
        parts.seal(frame=lambda part, raw: b"no frame" if part == "index" else compress(raw)),
    ):
        bundle.write_bytes(content)
        refused(bundle, "unsigned")


# -- the policy ------------------------------------------------------------------------------------------------------


def test_an_unknown_policy_is_refused(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOJIT_TRUST", "sigend")
    refused(bundle, "policy", match="expected any or signed, got 'sigend' - at NOJIT_TRUST")


def test_signed_needs_keys(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOJIT_TRUST", "signed")
    monkeypatch.delenv("NOJIT_TRUSTED_KEYS", raising=False)
    refused(bundle, "policy", match="NOJIT_TRUSTED_KEYS")


KEY = f'[[key]]\nname = "a"\npublic = """\n{RELEASE.pem}"""\n'
BROKEN = {
    "no file": (None, "No such file"),
    "no TOML": ("schema = ", "TOML"),
    "no text": (b"\xff\xfe", "TOML"),
    "no schema": (KEY, "expected schema = 1, got none"),
    "another schema": (f"schema = 2\n{KEY}", "expected schema = 1, got 2"),
    "a bool for a schema": (f"schema = true\n{KEY}", "expected schema = 1, got True"),
    "no key": ("schema = 1", r"expected at least one \[\[key\]\]"),
    "one key, no array": ('schema = 1\nkey = "a"', r"expected at least one \[\[key\]\]"),
    "a string for a key": ('schema = 1\nkey = ["a"]', r"expected a table, got str - at .*\$\.key\[0\]"),
    "a slip": (f"schema = 1\nminmum = 1\n{KEY}", "got 'minmum'; did you mean 'minimum'"),
    "a slip in a key": (f"schema = 1\n{KEY}bundle = []", r"got 'bundle'; did you mean 'bundles'.*\$\.key\[0\]"),
    "no name": ('schema = 1\n[[key]]\npublic = ""', r"expected a name, got none"),
    "no public key": (
        'schema = 1\n[[key]]\nname = "a"',
        "expected a public key in PEM: nojit sign --new-key writes one, got none",
    ),
    "no PEM": ('schema = 1\n[[key]]\nname = "a"\npublic = "b"', "expected a public key in PEM"),
    "a key twice": (f"schema = 1\n{KEY}{KEY}", "expected each key once, got the key of 'a' again"),
    "bundles": (f"schema = 1\n{KEY}bundles = ['a b']", "expected an array of names of bundles"),
    "one bundle": (f"schema = 1\n{KEY}bundles = 'a'", "expected an array of names of bundles"),
    "a minimum": (f"schema = 1\n{KEY}[minimum]\na = -1", "expected the name of a bundle and a build number from 0"),
    "two minima": (f"schema = 1\n{KEY}[minimum]\na_b = 1\nA-b = 2", "expected each bundle once, .*, got A-b again"),
    "a bool for a minimum": (f"schema = 1\n{KEY}[minimum]\na = true", "a = True"),
    "no table of minima": (f"schema = 1\nminimum = 7\n{KEY}", "expected a table of build numbers, got int"),
    "too long": ("#" * ((1 << 20) + 1), "expected a file of at most 1048576 bytes"),
}


@pytest.mark.parametrize("wrong", BROKEN)
def test_a_wrong_file_of_keys_is_refused(bundle: Path, signed: Path, wrong: str) -> None:
    content, match = BROKEN[wrong]
    sign(bundle)
    if content is None:
        signed.unlink()
    else:
        signed.write_bytes(content if isinstance(content, bytes) else content.encode())
    refused(bundle, "policy", match=match)


def test_a_key_of_another_kind_is_refused(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    public = X25519PrivateKey.generate().public_key()
    pem = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    with pytest.raises(BundleTrustError, match="expected an Ed25519 key"):
        read_public_key(pem, "here")
    private = RELEASE.private.private_bytes_raw()
    with pytest.raises(BundleTrustError, match="expected a public key in PEM"):
        read_public_key(private, "here")


@pytest.mark.parametrize("change", ["", "-----BEGIN PUBLIC KEY-----", "=", "A", "*", RELEASE.pem])
def test_a_key_has_one_form(change: str) -> None:
    lines = RELEASE.pem.splitlines()
    lines.insert(1, change)
    if not change:
        # lines may break anywhere
        lines[2:3] = [lines[2][:10], lines[2][10:], ""]
        assert key_id(read_public_key("\r\n".join(lines).encode(), "here")) == RELEASE.key_id
        return
    with pytest.raises(BundleTrustError, match="expected a"):
        read_public_key("\n".join(lines).encode(), "here")


def test_the_librarys_own_reader_reads_the_same(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    for number in range(50):
        signer = Signer.of(str(number))
        assert load_pem_public_key(signer.pem.encode()) == read_public_key(signer.pem.encode(), "here")


def test_keys_are_named_by_their_hash(keys: Path) -> None:
    trusted = read_trusted_keys(str(keys))
    assert list(trusted.keys) == [RELEASE.key_id]
    assert key_id(trusted.keys[RELEASE.key_id].public) == RELEASE.key_id


def test_a_claim_says_what_was_signed(bundle: Path, keys: Path) -> None:
    sign(bundle, build_number=3)
    digest = make_statement(bundle)["subject"][0]["digest"]
    claim = check_signed(str(bundle), digest["nojitIndex"], read_trusted_keys(str(keys)))
    assert (claim.name, claim.version, claim.build_number) == ("acme", "1.0", 3)
    assert (claim.digest, claim.sha256) == (digest["nojitIndex"], digest["sha256"])
    assert (claim.key_id, claim.key_name) == (RELEASE.key_id, "release")


def test_the_encodings_are_those_of_the_protocol() -> None:
    # the example of DSSE's protocol, with in-toto's type
    assert pre_authentication(b"hello world") == b"DSSEv1 28 application/vnd.in-toto+json 11 hello world"
    statement = {"a": 1}
    whole = envelope(statement, RELEASE)
    assert encode_envelope(b'{"a":1}', RELEASE.key_id, RELEASE.sign(b'{"a":1}')) == whole


# -- what it costs, and what it needs --------------------------------------------------------------------------------

CHILD = """
import sys
from nojit import runtime
runtime.load(sys.argv[1])
print(*sorted(sys.modules))
"""
WITHOUT = "import sys; sys.modules['cryptography'] = None\n" + CHILD


def child(code: str, bundle: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    known = {name: value for name, value in os.environ.items() if not name.startswith("NOJIT_TRUST")}
    words = [sys.executable, "-c", code, str(bundle)]
    return subprocess.run(words, env=known | environment, capture_output=True, text=True, check=False)


def test_without_a_policy_nothing_of_it_is_imported(bundle: Path) -> None:
    for environment in ({}, {"NOJIT_TRUST": "any"}):
        loaded = set(child(CHILD, bundle, **environment).stdout.split())
        assert "nojit.runtime.loader" in loaded
        assert loaded.isdisjoint({"nojit.runtime.trust", "cryptography", "tomllib"})


def test_without_cryptography_the_extra_is_named(bundle: Path, keys: Path) -> None:
    sign(bundle)
    ran = child(WITHOUT, bundle, NOJIT_TRUST="signed", NOJIT_TRUSTED_KEYS=str(keys))
    assert ran.returncode != 0
    assert "BundleTrustError: expected cryptography to be installed" in ran.stderr
    assert "pip install 'nojit[trust]'" in ran.stderr
    # and nobody else misses it
    assert child(WITHOUT, bundle).returncode == 0


def test_a_process_that_wants_signatures_loads_what_is_signed(bundle: Path, keys: Path) -> None:
    sign(bundle)
    assert child(CHILD, bundle, NOJIT_TRUST="signed", NOJIT_TRUSTED_KEYS=str(keys)).returncode == 0
