"""Every change of one byte, of a signed bundle or of its statement, is refused."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nojit.runtime.bundle.file import BundleFile
from nojit.runtime.errors import BundleError, BundleTrustError
from nojit.runtime.trust.claim import Claim
from nojit.runtime.trust.envelope import signed_path
from nojit.runtime.trust.policy import check_envelope, check_signed
from nojit.runtime.trust.trusted_keys import TrustedKeys, read_trusted_keys

from tests.support.bundles import kernel, make_bundle
from tests.support.signing import Signer, envelope, make_statement, trusted_keys

SIGNER = Signer.of("release")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = make_bundle(tmp_path_factory.mktemp("signed") / "a.nojit", kernel("add", {"n": "i32"}))
    Path(signed_path(str(path))).write_bytes(envelope(make_statement(path, build_number=1), SIGNER))
    return path


@pytest.fixture(scope="module")
def trusted(bundle: Path) -> TrustedKeys:
    return read_trusted_keys(str(trusted_keys(bundle.with_name("trusted.toml"), SIGNER)))


@pytest.fixture(scope="module")
def digest(bundle: Path) -> str:
    with BundleFile(bundle) as file:
        return file.digest


def flips(raw: bytes) -> Iterator[bytes]:
    for place, bit in itertools.product(range(len(raw)), range(8)):
        changed = bytearray(raw)
        changed[place] ^= 1 << bit
        yield bytes(changed)


def test_every_flipped_bit_of_a_statement_is_refused(bundle: Path, trusted: TrustedKeys, digest: str) -> None:
    raw = Path(signed_path(str(bundle))).read_bytes()
    assert isinstance(check_envelope(raw, digest, trusted, "here"), Claim)
    for changed in flips(raw):
        with pytest.raises(BundleTrustError):
            check_envelope(changed, digest, trusted, "here")


def test_every_byte_left_out_or_put_in_is_refused(bundle: Path, trusted: TrustedKeys, digest: str) -> None:
    raw = Path(signed_path(str(bundle))).read_bytes()
    for place in range(len(raw) + 1):
        inserted = [raw[:place] + byte + raw[place:] for byte in (b"A", b"=", b" ", b"\n", b"\0", b'"')]
        removed = [raw[:place] + raw[place + 1 :], raw[:place]] if place < len(raw) else []
        for changed in (*inserted, *removed):
            with pytest.raises(BundleTrustError):
                check_envelope(changed, digest, trusted, "here")


def test_every_changed_byte_of_a_bundle_is_refused(bundle: Path, trusted: TrustedKeys, tmp_path: Path) -> None:
    raw = bundle.read_bytes()
    path = tmp_path / "a.nojit"
    Path(signed_path(str(path))).write_bytes(Path(signed_path(str(bundle))).read_bytes())

    def read(content: bytes) -> None:
        path.write_bytes(content)
        # as a process does that launches everything
        with BundleFile(path, lambda where, digest: bool(check_signed(where, digest, trusted)) and None) as file:
            for name in file.kernels:
                file.table(name)
            list(file.images())

    read(raw)
    for place in range(len(raw)):
        changed = bytearray(raw)
        # every bit of it, where that is done without signatures: tests/abuse/test_golden.py
        changed[place] ^= 1 << place % 8
        with pytest.raises(BundleError):
            read(bytes(changed))


@given(data=st.data())
@settings(max_examples=300, deadline=None)
def test_no_mixture_of_two_statements_is_taken(
    bundle: Path, trusted: TrustedKeys, digest: str, data: st.DataObject
) -> None:
    # both are signed: what is taken of one must not vouch for the other
    first = envelope(make_statement(bundle, build_number=1), SIGNER)
    second = envelope(make_statement(bundle, build_number=2), SIGNER)
    start = data.draw(st.integers(0, len(first)))
    end = data.draw(st.integers(start, len(first)))
    mixed = first[:start] + second[start:end] + first[end:]
    if mixed in (first, second):
        assert check_envelope(mixed, digest, trusted, "here").build_number in {1, 2}
    else:
        with pytest.raises(BundleTrustError):
            check_envelope(mixed, digest, trusted, "here")


@given(data=st.data())
@settings(max_examples=200, deadline=None)
def test_a_mutated_file_of_keys_is_read_or_refused(bundle: Path, data: st.DataObject) -> None:
    path = bundle.with_name("mutated.toml")
    raw = trusted_keys(path, SIGNER, each='bundles = ["test"]', more="[minimum]\ntest = 7").read_bytes()
    start = data.draw(st.integers(0, len(raw)))
    end = data.draw(st.integers(start, min(len(raw), start + 8)))
    path.write_bytes(raw[:start] + data.draw(st.binary(max_size=8)) + raw[end:])
    try:
        said = "read" if read_trusted_keys(str(path)).keys else "without a key"
    except BundleTrustError as error:
        said = error.reason
    assert said in {"read", "policy"}


@given(raw=st.binary(max_size=200))
@settings(max_examples=300, deadline=None)
def test_any_other_bytes_are_no_statement(trusted: TrustedKeys, digest: str, raw: bytes) -> None:
    with pytest.raises(BundleTrustError) as error:
        check_envelope(raw, digest, trusted, "here")
    assert error.value.reason == "envelope"
