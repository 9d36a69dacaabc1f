"""The attachment that says where the kernels of a recording's bundle come from: it is read strictly."""

import json

import pytest
from nojit.runtime.base.strict_json import canonical_json
from nojit.runtime.errors import BundleFormatError
from nojit.runtime.recording.origins import (
    Distribution,
    InductorFacts,
    Origin,
    Origins,
    Winner,
    encode_origins,
    read_origins,
)

FINGERPRINT = {
    "definitions": [{"module": "m", "qualname": "k", "text": "00", "names": [["helper", 0], ["SCALE", "11"]]}]
}
ORIGINS = Origins(
    triton="3.9.0",
    torch="",
    kernels=(
        Origin(
            kernel="k",
            module="m",
            qualname="k",
            closure="22",
            fingerprint=FINGERPRINT,
            functions={"m:act": FINGERPRINT},
            options={"num_warps": 4, "maxnreg": None},
            winners=(Winner(("n", "dtype"), (7, {"dtype": "fp16"}), {"BLOCK": 64, "num_warps": 8}),),
        ),
    ),
    distributions=(Distribution("liger", "0.5", "BSD-2-Clause"),),
    inductor=(InductorFacts("sm_90", "3.9.0ab", "ptxas-90"),),
)


def test_what_is_encoded_is_read():
    read = read_origins(encode_origins(ORIGINS), "b.nojit")
    assert encode_origins(read) == encode_origins(ORIGINS)
    assert read.kernels[0].winners == ORIGINS.kernels[0].winners
    assert dict(read.kernels[0].options) == {"num_warps": 4, "maxnreg": None}
    assert read.distributions == ORIGINS.distributions
    assert read.inductor == ORIGINS.inductor


def changed(*path, to):
    content = json.loads(encode_origins(ORIGINS))
    inner = content
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = to
    return canonical_json(content)


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"{", "JSON"),
        (b"[" * 100_000, "JSON"),
        (b"[]", "an object"),
        (encode_origins(ORIGINS) + b" ", "canonical"),
        (changed("format", to=1), "format 2"),
        (changed("more", to=1), "unknown field 'more'"),
        (changed("triton", to=3), "a string"),
        (changed("kernels", to={}), "an array"),
        (changed("kernels", 0, "module", to=None), "a string"),
        (changed("kernels", 0, "fingerprint", to={}), "definitions"),
        (changed("kernels", 0, "fingerprint", "definitions", to=[]), "a definition"),
        (changed("kernels", 0, "fingerprint", "definitions", 0, "names", to=[["helper", 1]]), "number of a definition"),
        (
            changed("kernels", 0, "fingerprint", "definitions", 0, "names", to=[["helper", True]]),
            "number of a definition",
        ),
        (changed("kernels", 0, "functions", to=[["m:act"]]), "a pair"),
        (changed("kernels", 0, "options", to=[["b", 1], ["a", 1]]), "canonical"),
        (changed("kernels", 0, "winners", 0, "key", to="n"), "an array"),
        (changed("kernels", 0, "winners", 0, "config", to=[]), "an object"),
        (changed("distributions", 0, "license", to=None), "a string"),
        (changed("inductor", 0, "triton_key", to=None), "a string"),
    ],
)
def test_another_form_is_refused(raw, words):
    with pytest.raises(BundleFormatError, match=words) as caught:
        read_origins(raw, "b.nojit")
    assert "b.nojit" in str(caught.value)
