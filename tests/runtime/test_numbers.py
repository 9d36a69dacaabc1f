"""Numbers for params of another type: what Triton makes of them for a param whose type is declared, and no more."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from nojit.runtime.errors import NojitError

from tests.fakecuda import FakeCuda
from tests.runtime.conftest import Make

TAKEN: list[tuple[tuple[str, ...], Any, bytes]] = [
    (("fp32",), 3, struct.pack("<f", 3.0)),
    (("fp32",), 16, struct.pack("<f", 16.0)),
    (("fp32",), True, struct.pack("<f", 1.0)),
    (("fp32",), -(2**63), struct.pack("<f", -(2.0**63))),
    (("fp32",), 2**64 - 1, struct.pack("<f", 2.0**64)),
    (("fp16",), 3, struct.pack("<e", 3.0)),
    (("bf16",), 3, b"\x40\x40"),
    (("fp64",), 2**53 + 1, struct.pack("<d", 2.0**53)),
    (("i32",), True, struct.pack("<i", 1)),
    (("i64",), False, struct.pack("<q", 0)),
    (("u8",), True, b"\1"),
    (("i1",), 1, b"\1"),
    (("i1",), 0, b"\0"),
    # what a type takes as it is comes first, in whatever order the types stand
    (("fp32", "i32"), 3, struct.pack("<i", 3)),
    (("i32", "fp32"), True, struct.pack("<i", 1)),
    (("fp32", "i32", "i1"), True, b"\1"),
    (("i32", "fp32"), 3.0, struct.pack("<f", 3.0)),
    (("i1", "fp32"), 1, struct.pack("<f", 1.0)),
]


@pytest.mark.parametrize(("types", "value", "packed"), TAKEN, ids=str)
def test_a_number_is_passed_as_triton_passes_it(
    make: Make, fakecuda: FakeCuda, types: tuple[str, ...], value: Any, packed: bytes
) -> None:
    add = make({"thing": "{kind}", "n": "i32"}, matrix={"kind": list(types)}, hints=[{"n": 16}])
    as_built = f"thing: {types}"
    for _ in range(2):  # the second time from the plans
        add[(1,)](value, 5)
        assert fakecuda.last_launch().params[0] == packed, as_built
        add.bind((1,), thing=value)(n=16)
        assert fakecuda.last_launch().params[0] == packed, as_built
    chosen = add.explain(value, 5).case["kind"]
    assert chosen == add.explain(value, 5, arch="sm_90").case["kind"]
    assert add.choices(value, 5).table.axes[0].values.index(chosen) == types.index(chosen)
    assert add.warmup(value, 5).variant == add.warmup(value, 5).variant


def test_a_bool_for_an_int_has_the_hints_of_its_value(make: Make, fakecuda: FakeCuda) -> None:
    add = make({"n": "i32"}, hints=[{"n": 1}, {"n": 16}])
    kernels = {}
    for value in (True, False, 1, 0, 5):
        add[(1,)](value)
        kernels[repr(value)] = fakecuda.last_launch().kernel
    assert kernels["True"] == kernels["1"]
    assert kernels["False"] == kernels["0"]
    assert len(set(kernels.values())) == 3


REFUSED: list[tuple[str, Any]] = [
    ("i32", 1.0), ("i32", 2.5), ("i1", 2), ("i1", -1), ("i1", 1.0), ("fp32", 2**64), ("fp32", "1"), ("fp32", None), ("i32", None),
    ("fp16", 70_000), ("*fp16", True), ("*fp16", 1.0), ("(fp32,i32)", (1, 1)), ("(fp32,i32)", (1.0, True)), ("(i1,i32)", (1, 1)),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "value"), REFUSED, ids=str)
def test_no_other_number_is_converted_and_no_member_of_a_tuple(
    make: Make, fakecuda: FakeCuda, kind: str, value: Any
) -> None:
    add = make({"thing": kind})
    for _ in range(2):
        with pytest.raises(NojitError, match="thing"):
            add[(1,)](value)
    assert fakecuda.launch_count() == 0


def test_tritons_binder_goes_by_the_declared_type_whatever_number_is_given() -> None:
    """The oracle: an annotated param has its type, which Triton's launcher then converts to as C does."""
    jit = pytest.importorskip("triton.runtime.jit")
    from triton.backends.compiler import GPUTarget
    from triton.backends.nvidia.compiler import CUDABackend

    from tests.support.triton_source import annotated_numbers as function

    binder = jit.create_function_from_signature(
        function.signature, function.params, CUDABackend(GPUTarget("cuda", 90, 32))
    )
    for value in (3, True, 2.5):
        _, specialization, _ = binder(value, value, value)
        assert [kind for kind, _ in specialization] == ["fp32", "i32", "u1"]
