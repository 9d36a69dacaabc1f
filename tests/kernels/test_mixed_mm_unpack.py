"""The assembly that unpacks weights of 4 bits, run instruction by instruction as the PTX manual says."""

from __future__ import annotations

import re
from itertools import product

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from nojit.kernels.mixed_mm.kernel_unpack import _constraints, _unpacking

KINDS = {"f16x2": torch.float16, "bf16x2": torch.bfloat16}


def halves(word: int, dtype: torch.dtype) -> Tensor:
    return torch.tensor([word & 0xFFFF, word >> 16], dtype=torch.uint16).view(dtype)


def whole(values: Tensor) -> int:
    low, high = values.view(torch.uint16).tolist()
    return low | high << 16


def permute(a: int, b: int, selector: int) -> int:
    pool = (a | b << 32).to_bytes(8, "little")
    assert not selector & 0x8888, "bytes are taken as they are"
    return int.from_bytes(bytes(pool[selector >> 4 * place & 7] for place in range(4)), "little")


def fused(a: int, b: int, c: int, dtype: torch.dtype) -> int:
    a, b, c = (halves(word, dtype).double() for word in (a, b, c))
    return whole((a * b + c).to(dtype))


def execute(assembly: str, given: dict[str, int], count: int) -> list[int]:
    """Run the assembly; return the outputs, 16 bits each."""
    registers = dict(given)
    outputs: dict[int, int] = {}

    def read(word: str) -> int:
        return int(word, 0) if word[0].isdigit() else registers[word]

    for line in re.findall(r"[^;{}\n]+(?:\{[^}]*\}[^;]*)?;", assembly.strip()[1:-1]):
        operation, _, rest = line.strip(" ;").partition(" ")
        if operation == ".reg":
            continue
        if operation == "mov.b32" and rest.startswith("{"):
            low, high, source = re.fullmatch(r"\{\$(\d+), \$(\d+)\}, (\w+)", rest).groups()
            outputs[int(low)], outputs[int(high)] = read(source) & 0xFFFF, read(source) >> 16
            continue
        target, *sources = rest.split(", ")
        kind = operation.rpartition(".")[2]
        values = [read(source) for source in sources]
        registers[target] = {
            "mov": lambda x: x,
            "cvt": lambda x: x,
            "shr": lambda x, y: x >> y,
            "prmt": permute,
            # of three inputs, 0xea is (a & b) | c
            "lop3": lambda x, y, z, table: (x & y | z) if table == 0xEA else None,
            "fma": lambda x, y, z, kind=kind: fused(x, y, z, KINDS[kind]),
        }[operation.partition(".")[0]](*values)
        if target[0] == "$":
            place = 2 * int(target[1:])
            outputs[place], outputs[place + 1] = registers[target] & 0xFFFF, registers[target] >> 16
    assert sorted(outputs) == list(range(count))
    return [outputs[place] for place in range(count)]


@pytest.mark.parametrize(
    ("kind", "together", "groups"), list(product(KINDS, (False, True), ("none", "scales", "zeros")))
)
def test_every_byte_in_every_place(kind, together, groups):
    dtype, columns, rows = KINDS[kind], 4 if together else 2, 2
    scales, zeros = (torch.rand(columns) + 0.5).to(dtype), torch.tensor([0.0, 7.0, 8.0, 15.0][:columns]).to(dtype)
    assembly = _unpacking(kind == "f16x2", together, groups)
    outputs = columns * rows
    # every byte comes in every place
    for byte in range(256):
        packed = [[(byte + 37 * place + 101 * row) % 256 for place in range(columns)] for row in range(rows)]
        words = [int.from_bytes(bytes(row), "little") for row in (packed if together else [[*packed[0], *packed[1]]])]
        # without `together`, both rows bring theirs
        each = 1 if together else 2
        if groups != "none":
            words += [whole(pair) for pair in scales.split(2)] * each
        if groups == "zeros":
            words += [whole(pair) for pair in zeros.split(2)] * each
        given = {f"${outputs + place}": word for place, word in enumerate(words)}
        assert len(_constraints(together, groups).split(",")) == outputs + len(words)
        bits = execute(assembly, given, 2 * columns * rows)
        got = torch.tensor(bits, dtype=torch.uint16).view(dtype).view(columns, 2, 2)
        # `together`, a pair holds two rows; otherwise, two nibbles
        got = got if together else got.mT
        nibbles = torch.tensor(
            [[[row[place] >> shift & 15 for row in packed] for shift in (0, 4)] for place in range(columns)]
        )
        right = nibbles.to(dtype) - (zeros[:, None, None] if groups == "zeros" else 8)
        right = right if groups == "none" else right * scales[:, None, None]
        assert torch.equal(got, right / 4 if together and kind == "bf16x2" else right)
