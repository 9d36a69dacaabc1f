"""What `nj_options.verify` gets to see of a bundle, and when a bundle opens without it."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.conftest import VECTOR_ADD
from tests.support.bundles import kernel, make_bundle
from tests.support.capi import VERIFY, CApi, CError, Options

TRUST = 7
STATEMENT_BYTES_MAX = 4 << 20


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return make_bundle(tmp_path / "k.nojit", kernel("add", **VECTOR_ADD))


def claim_of(path: Path | bytes) -> tuple[bytes | None, bytes, bytes | None]:
    """Open a bundle, and return the path, the digest and the statement that its verifier saw."""
    seen: list[tuple[bytes | None, bytes, bytes | None]] = []

    def judge(_user: Any, claim: Any) -> int:
        one = claim.contents
        statement = None if one.statement is None else ctypes.string_at(one.statement, one.statement_bytes)
        seen.append((one.path, one.digest, statement))
        return 0

    options = Options.of(verify=VERIFY(judge))
    bundle = CApi().open_memory(path, options) if isinstance(path, bytes) else CApi().open(path, options)
    digest = bundle.about().digest
    bundle.close()
    ((there, judged, statement),) = seen
    assert judged == digest
    return there, judged, statement


def test_the_statement_stands_beside_the_bundle(path: Path) -> None:
    path.with_name("k.intoto.jsonl").write_bytes(b"signed\0whole")
    assert claim_of(path)[::2] == (str(path).encode(), b"signed\0whole")


def test_a_bundle_of_another_ending_keeps_it_in_the_statements_name(path: Path) -> None:
    renamed = path.rename(path.with_name("k.bundle"))
    path.with_name("k.intoto.jsonl").write_bytes(b"of another bundle")
    assert claim_of(renamed)[2] is None
    path.with_name("k.bundle.intoto.jsonl").write_bytes(b"signed")
    assert claim_of(renamed)[2] == b"signed"


def test_what_is_no_statement_is_none(path: Path) -> None:
    beside = path.with_name("k.intoto.jsonl")
    assert claim_of(path)[2] is None
    beside.mkdir()
    assert claim_of(path)[2] is None
    beside.rmdir()
    beside.write_bytes(b"x" * (STATEMENT_BYTES_MAX + 1))
    assert claim_of(path)[2] is None
    beside.write_bytes(b"x" * STATEMENT_BYTES_MAX)
    assert claim_of(path)[2] == b"x" * STATEMENT_BYTES_MAX


def test_a_bundle_in_memory_has_neither_path_nor_statement(path: Path) -> None:
    path.with_name("k.intoto.jsonl").write_bytes(b"signed")
    assert claim_of(path.read_bytes())[::2] == (None, None)


OPEN = """
import sys
from pathlib import Path
from tests.support.capi import VERIFY, CApi, CError, Options

options = Options.of(verify=VERIFY(lambda *_: 0)) if len(sys.argv) > 2 else None
try:
    CApi().open(Path(sys.argv[1]), options)
except CError as error:
    print(error.code, error.what, error.got, error.where)
"""


@pytest.mark.parametrize(
    ("policy", "verifies", "said"),
    [
        ("any", False, ""),
        ("any", True, ""),
        ("signed", True, ""),
        ("signed", False, "7 expected nj_options.verify to be set, which NOJIT_TRUST=signed needs none {path}\n"),
        ("Signed", True, "7 expected any or signed 'Signed' {path} NOJIT_TRUST\n"),
        ("", False, "7 expected any or signed '' {path} NOJIT_TRUST\n"),
    ],
)
def test_the_policy_of_the_process_asks_for_a_verifier(path: Path, policy: str, verifies: bool, said: str) -> None:
    command = [sys.executable, "-c", OPEN, str(path), *(["verify"] if verifies else [])]
    ran = subprocess.run(command, env=os.environ | {"NOJIT_TRUST": policy}, capture_output=True, text=True, check=False)
    assert (ran.stderr, ran.stdout) == ("", said.format(path=path))


def test_a_refusal_names_the_bundle(path: Path) -> None:
    with pytest.raises(CError, match=f"nj_options.verify refuses the bundle, got  - at {path}") as caught:
        CApi().open(path, Options.of(verify=VERIFY(lambda *_: 1)))
    assert caught.value.code == TRUST
