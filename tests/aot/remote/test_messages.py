"""Messages between builds and remote workers: what is sent arrives, and anything else is refused with a reason."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard
from nojit.aot.cache.entry import seal
from nojit.aot.compile.sources.captured import Captured
from nojit.aot.remote import messages
from nojit.aot.remote.messages import Description, Job, MessageError, Other, Refused, Setup
from nojit.aot.variants.variant import CompiledVariant, encode_compiled
from nojit.runtime.errors import CompileError
from nojit.runtime.table.parts import Config
from nojit.runtime.values import DType, FunctionRef

from tests.aot.fake_compiler import FakeCompiler, FakeSource
from tests.aot.remote.cluster import CAPTURED, PLACE, VARIANTS, key_of

SETUP = Setup("0.1.0 (abc)", 12040, 2.5)
VARIANT = replace(
    VARIANTS[3],
    constexprs=(
        ("D", 3),
        ("T", DType("fp16")),
        ("F", FunctionRef("a.b:f")),
        ("X", (1.5, None, "é", (True, 2**63 - 1))),
    ),
    hints=(("x", 16),),
    config=Config((("D", 3),), (("num_warps", 8),), "D > 2"),
    derived=(("E", -1),),
)
JOB = Job(
    SETUP,
    "sm_90",
    (("ptxas", "13.4"),),
    "demo.toml",
    CAPTURED._replace(functions=(("a.b:f", "1" * 64),)),
    ((key_of(3), VARIANT),),
)


def packed(document: object) -> bytes:
    return zstandard.compress(json.dumps(document).encode())


@pytest.fixture
def compiled(tmp_path: Path) -> CompiledVariant:
    return FakeCompiler(tmp_path / "journal", {"demo:k": FakeSource(("x",), ("D",))}).compile_variant(
        VARIANTS[3], PLACE
    )


def test_a_job_arrives() -> None:
    # names of this machine's files stay here
    assert messages.decode_job(messages.encode_job(JOB)) == replace(JOB, captured=JOB.captured._replace(files=()))


def test_a_text_that_utf8_cannot_hold_arrives() -> None:
    job = replace(JOB, where="half a pair: \ud800, é")
    assert messages.decode_job(messages.encode_job(job)) == replace(job, captured=job.captured._replace(files=()))


def test_a_job_is_a_document_without_code_or_paths() -> None:
    document = json.loads(zstandard.decompress(messages.encode_job(JOB)))
    assert set(document) == {
        "format", "nojit", "min_driver", "timeout_ms", "arch", "toolchain", "where", "kernel", "functions", "closures", "variants",
    }  # fmt: skip
    assert document["closures"] == {"0" * 64: {"definitions": []}}
    assert "/src" not in json.dumps(document)


def test_results_arrive(compiled: CompiledVariant) -> None:
    failed = CompileError("expected", got="x", where="k.py:1", log="a\nb")
    sent = [(key_of(0), compiled), (key_of(1), failed), (key_of(2), Other("why")), (key_of(3), compiled)]
    found = messages.decode_results(messages.encode_results(sent, "sm_90"), "sm_90")
    assert isinstance(found, dict)
    assert list(found) == [key_of(number) for number in range(4)]
    assert found[key_of(2)] == Other("why")
    for key in (key_of(0), key_of(3)):
        assert found[key] == (compiled, seal(key, encode_compiled(compiled, "sm_90")))
    error = found[key_of(1)]
    assert isinstance(error, CompileError)
    assert vars(error) == vars(failed)


def test_a_refusal_and_a_description_arrive() -> None:
    has = Description("0.1.0 (abc)", "host", {"sm_90": (("ptxas", "13.4"),)}, "a problem")
    assert messages.decode_results(messages.encode_refusal(has), "sm_90") == Refused(has)
    assert messages.decode_description(messages.encode_description(has)) == has
    assert messages.decode_setup(messages.encode_setup(SETUP, ["sm_90"])) == (SETUP, ("sm_90",))


def test_every_damaged_byte_of_results_is_refused(compiled: CompiledVariant) -> None:
    plain = zstandard.decompress(messages.encode_results([(key_of(0), compiled)], "sm_90"))
    for at in range(0, len(plain), 3):
        damaged = bytearray(plain)
        damaged[at] ^= 1
        try:
            found = messages.decode_results(zstandard.compress(bytes(damaged)), "sm_90")
        except MessageError:
            continue
        # a damaged key gives nobody's result
        assert key_of(0) not in found


def test_an_entry_of_another_key_or_arch_is_refused(compiled: CompiledVariant) -> None:
    message = messages.encode_results([(key_of(0), compiled)], "sm_90")
    with pytest.raises(MessageError, match="expected an image for sm_80"):
        messages.decode_results(message, "sm_80")
    other = zstandard.decompress(message).replace(key_of(0).encode(), key_of(1).encode(), 1)
    with pytest.raises(MessageError, match="expected the entry of this key"):
        messages.decode_results(zstandard.compress(other), "sm_90")


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (b"", "expected a zstd frame"),
        (b"no frame", "expected a zstd frame"),
        (packed([]), "expected a message of format 1, got 'list'"),
        (packed({"format": 2}), "expected a message of format 1, got 2: install the same nojit everywhere"),
        (packed({"format": 1}), "expected a job of format 1, got KeyError"),
        (zstandard.compress(b"[" * 100_000), "recursion|Expecting|depth"),
    ],
)
def test_other_messages_are_refused(message: bytes, why: str) -> None:
    with pytest.raises(MessageError, match=why):
        messages.decode_job(message)


KEY = key_of(0)


@pytest.mark.parametrize(
    "results",
    [
        None,
        [None],
        [{"key": [], "other": "x"}],
        [{"key": KEY, "bytes": float("inf")}],
        [{"key": KEY, "bytes": -1}],
        [{"key": KEY, "bytes": True}],
        [{"key": KEY, "failed": []}],
    ],
)
def test_other_results_are_refused(results: object) -> None:
    with pytest.raises(MessageError, match="expected results of format 1"):
        messages.decode_results(packed({"format": 1, "results": results}), "sm_90")


def test_results_that_are_nested_deeply_are_refused() -> None:
    with pytest.raises(MessageError):
        messages.decode_results(zstandard.compress(b"[" * 100_000), "sm_90")


def test_words_of_errors_are_texts() -> None:
    failed = {"what": {}, "got": None, "where": 1, "log": []}
    found = messages.decode_results(packed({"format": 1, "results": [{"key": KEY, "failed": failed}]}), "sm_90")
    assert isinstance(found, dict)
    error = found[KEY]
    assert isinstance(error, CompileError)
    assert (error.what, error.where, error.log) == ("{}", "1", "[]")


def test_a_closure_is_data_that_is_compared_with_its_digest_later() -> None:
    captured = Captured("2" * 64, (), (("2" * 64, b'{"definitions":[{"text":"def f(): pass"}]}'),), ())
    assert messages.decode_job(messages.encode_job(replace(JOB, captured=captured))).captured == captured
