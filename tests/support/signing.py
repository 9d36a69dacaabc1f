"""Sign bundles in tests, by `cryptography` alone: what the runtime checks is not made by what it is checked with."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from nojit.runtime.bundle.file import BundleFile

__all__ = ["Signer", "envelope", "make_statement", "trusted_keys"]

ed25519 = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ed25519")
serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")

KIND = "application/vnd.in-toto+json"


@dataclass(frozen=True)
class Signer:
    """A key pair."""

    name: str
    private: Any

    @staticmethod
    def of(name: str) -> Signer:
        """Make the same key of the same name, so that tests are reproducible."""
        return Signer(name, ed25519.Ed25519PrivateKey.from_private_bytes(hashlib.sha256(name.encode()).digest()))

    @property
    def pem(self) -> str:
        """The public key."""
        kind = serialization.PublicFormat.SubjectPublicKeyInfo
        return self.private.public_key().public_bytes(serialization.Encoding.PEM, kind).decode()

    @property
    def key_id(self) -> str:
        """What the public key is called: the hash of what stands between the lines of its PEM."""
        return hashlib.sha256(base64.b64decode("".join(self.pem.splitlines()[1:-1]))).hexdigest()

    def sign(self, payload: bytes) -> bytes:
        """Sign as DSSE says, spelled out."""
        message = b" ".join([b"DSSEv1", b"%d" % len(KIND), KIND.encode(), b"%d" % len(payload), payload])
        return self.private.sign(message)


def make_statement(
    bundle: Path, *, build_number: int = 0, metadata: dict[str, Any] | None = None, **changes: Any
) -> dict[str, Any]:
    """Say of a bundle what the runtime looks at; `changes` replace fields of the statement, `metadata` is of the run."""
    with BundleFile(bundle) as file:
        name, version, digest = file.index.name, file.index.version, file.digest
    sha256 = hashlib.sha256(bundle.read_bytes()).hexdigest()
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": bundle.name, "digest": {"sha256": sha256, "nojitIndex": digest}}],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "externalParameters": {"bundle": {"name": name, "version": version}},
                "internalParameters": {"buildNumber": build_number},
            },
            **({} if metadata is None else {"runDetails": {"metadata": metadata}}),
        },
    } | changes


def envelope(statement: object, signer: Signer, key_id: str = "") -> bytes:
    """Wrap and sign a statement, or any payload."""
    payload = statement if isinstance(statement, bytes) else _canonical(statement)
    parts = {
        "payload": base64.b64encode(payload).decode(),
        "payloadType": KIND,
        "signatures": [
            {"keyid": key_id or signer.key_id, "sig": base64.b64encode(signer.sign(payload)).decode()},
        ],
    }
    return json.dumps(parts, separators=(",", ":")).encode() + b"\n"


def _canonical(statement: object) -> bytes:
    return json.dumps(statement, sort_keys=True, separators=(",", ":")).encode()


def trusted_keys(path: Path, *signers: Signer, more: str = "", each: str = "") -> Path:
    """Write a file of trusted keys.

    Args:
        path: of the file.
        signers: whose public keys are in it.
        more: what follows the keys.
        each: what each key says beside its name and its public key.
    """
    keys = "".join(f'[[key]]\nname = "{signer.name}"\npublic = """\n{signer.pem}"""\n{each}\n' for signer in signers)
    path.write_text(f"schema = 1\n{keys}{more}\n", encoding="utf-8")
    # whatever the umask
    path.chmod(0o644)
    return path
