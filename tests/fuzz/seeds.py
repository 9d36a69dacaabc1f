"""Write the seeds of a fuzz target: ``python -m tests.fuzz.seeds TARGET FOLDER``."""

from __future__ import annotations

import json
import random
import struct
import sys
from collections.abc import Sequence
from pathlib import Path

from nojit.runtime.values import DType, FunctionRef

from tests.support.bundles import Parts, SyntheticKernel, compress, kernel
from tests.support.cubins import CubinSpec, build_cubin
from tests.support.hostile import golden_parts
from tests.support.hsacos import HsacoKernel, build_hsaco
from tests.support.images import Image, attribute, kernel_info
from tests.support.jsonlies import canonical, split_table

__all__ = ["SEEDS", "rich_tables", "write_seeds"]


def _images() -> list[bytes]:
    debug = Image()
    debug.sections.append([".debug_line", 1, b"lines", 0, 0])
    return [
        Image(info=kernel_info(cluster=(2, 1, 1)) + attribute(5, struct.pack("<III", 256, 1, 1))).build(),
        Image(abi=7, flags=0x5A0D5A, compat=b"").build(),
        Image(flags=0x6005A02).build(),
        debug.build(),
        build_cubin(CubinSpec("add", (8, 128, 4)), CubinSpec("b")),
        build_hsaco(),
        build_hsaco(HsacoKernel("one", (8,), 128, 32), HsacoKernel("two", (4, 8, 1)), arch="gfx1201"),
        build_cubin(CubinSpec("one", (8,), 8, 4, static_shared_bytes=4096), sm=80, suffix="", abi=7),
    ]


def _program(*instructions: tuple[int, int]) -> bytes:
    return b"".join(struct.pack("<B7xq", op, operand) for op, operand in instructions)


def _expressions() -> list[bytes]:
    texts = ["a 16 % 0 ==", "a 128 cdiv()", "a b min() c max() 2 *", "d has() a 0 < and", "f 16 aligned() c or not()",
             "a next_pow2() neg() 3 //", "b -1 // 4 + 7 -", "true false ==", "e none != a 1 >= or", "g 1 <= h ==", "'x' a >",
             "cdiv(a, 0x10) * -b", "not has(d) and (a % 16 == 0 or c)", "min(a, b, -3) <= next_pow2(a)", "aligned(f, 16) == true",
             "h != 'x y' or \"z\" == none", "min(a)", "max()", "cdiv(1, 2, 3)", "99999999999999999999", "0xfffffffffffffffff",
             "9223372036854775808", "-9223372036854775808", "a or (c or d) or (c or not c)", "c and (c and (c and c))",
             "k and a > 0", "not k or a > 0", "k or true", "l == none and m == 'x'", "m == 'x' and a < i", "a >= i or a > i",
             "i % 5 + -j", "next_pow2(0) + next_pow2(j)", "f == f and f < f", "aligned(d, 16) or aligned(a, 0)", "has(e)",
             "min(a, -a) // 0", "c + 1", "a < c", "f % 16", "((((((((((a))))))))))", "a < 1 < 2", "'x", "a ? b", "0x", "a b"]  # fmt: skip
    # load a, constant 16, mod; load c, jump over a load
    return [*(text.encode() for text in texts), _program((5, 0), (1, 16), (12, 0)), _program((5, 2), (25, 1), (5, 3))]


def _bundles() -> list[bytes]:
    parts = golden_parts()
    header: list[bytes] = []
    index: list[bytes] = []

    sections: list[bytes] = []

    def note(name: str, raw: bytes) -> bytes:
        {"header": header, "index": index}.get(name, []).append(raw)
        if name.startswith(("table", "images", "groups")):
            # the three parts of a section come one after the other
            sections.append((b"" if name.startswith("table") else sections.pop()) + raw)
        return raw

    data = parts.seal(edit=note)
    wide = json.loads(index[0]) | {"version": "\u00e9\n\u20ac\U0001f600", "toolchain": [["\u00fc", "1"]]}
    others = [json.loads(index[0]) for _ in range(3)]
    for other, arch, image in zip(others, ("sm_80", "sm_87", "sm_100"), ("sm_80", "sm_87", "sm_100f"), strict=True):
        other["target"] |= {"arch": arch, "image_arch": image}
    escaped = canonical(wide).replace("\u20ac".encode(), b"\\u20ac")
    lengths = struct.pack("<4I", 5, 7, 11, 13)
    groups = struct.pack("<III32xIII32x", 3, 100, 23, 1, 200, 13)
    frames = [bytes.fromhex("28b52ffd240001000099e9d851"), data[64:100], bytes.fromhex("28b52ffd8458000000000000")]
    counts = [struct.pack("<HHHB", rows, len(images), len(sizes), right) for (_, rows, _), images, sizes in
              zip(parts.tables, parts.images, parts.group_sizes, strict=True) for right in (0, 1)]  # fmt: skip
    whole = [
        section + count for section, count in zip((each for each in sections for _ in (0, 1)), counts, strict=True)
    ]
    small = compress(b"a few bytes" * 9)
    frames += [b"", small, small + b"more", small[:-1] + b"x", small[:5] + b"\x62" + small[6:]]
    return [
        *header,
        *index,
        *map(canonical, others),
        escaped,
        canonical(wide),
        lengths + groups + struct.pack("<H", 4),
        *frames,
        *whole,
        data,
    ]


def _tuned(raw: bytes) -> bytes:
    """Give a table a tuning, defaults of every kind, and an axis of types."""
    header, columns = split_table(raw)
    document = json.loads(header)
    device = {"arch": "sm_90", "memory_bytes": 1 << 37, "multiprocessors": 132, "name": "NVIDIA H200"}
    blocks = [{"costs": [[0, "key0 multiprocessors cdiv()"]], "cases": [0], "rows": [[[1], [0], [0]], [[8], [0], [7]]]}]
    document["tuning"] = {"bucket": "pow2", "key": ["n"], "tables": [{"blocks": blocks, "device": device}]}
    document["programs"].insert(len(document["grid"]) + len(document["derived"]), "n")
    values = [
        {"float": "-0x1.8000000000000p-3"},
        {"float": "inf"},
        {"dtype": "fp16"},
        {"function": "m:f"},
        "\u00e9",
        -(1 << 64) + 1,
    ]
    document["params"][-1]["default"] = [{"tuple": [*values, None, True, {"tuple": []}]}]
    document["batch"] = ["n"]
    return canonical(document) + columns


def _busy(raw: bytes) -> bytes:
    """Give a table that many rows and an axis of types, which its expressions name, so that its work is counted."""
    header, columns = split_table(raw)
    document = json.loads(header)
    document["axes"].append({"is_type": True, "name": "n", "values": [1, 2, 3]})
    document["cases"] = [[*case, place] for case in document["cases"] for place in (0, 2)]
    document["configs"] += document["configs"] * 9
    programs = document["programs"]
    document["programs"] = [*programs[:2], *programs[2:] * 10]
    return canonical(document) + columns


def _tables() -> list[bytes]:
    types = {
        "x": "(*fp16,(i32,none),=1.5,='a%20b')",
        "y": "tensordesc<fp16[64,32]>",
        "f": "=function:m:f",
        "n": "i64",
    }
    pairs = ((1, DType("fp16")), (2, DType("fp32")))
    packed = Parts.of(kernel("packed", types, hints=[{"x.0": 16, "n": 1}]),
                      kernel("pairs", {"n": "i32", "PAIR": "constexpr"}, matrix={"PAIR": pairs}))  # fmt: skip
    made: list[bytes] = []
    for _, rows, raw in (*golden_parts().tables, *packed.tables):
        header, columns = split_table(raw)
        numbers = struct.pack("<HH", rows, 1000)
        made += [raw + numbers, header + columns + numbers, _tuned(raw) + numbers]
    _, rows, raw = golden_parts().tables[1]
    made.append(_busy(raw) + struct.pack("<HH", rows, 1000))
    return made


def _rich_kernels() -> list[SyntheticKernel]:
    """Kernels that each use what selection has many kinds of: types, values of axes, and names in expressions."""
    kinds = {
        f"p{at}": kind
        for at, kind in enumerate(("i1", "i8", "i16", "u8", "u16", "u32", "u64", "fp64", "bf16", "*fp8e5", "i64?"))
    }
    values = (
        "zero",
        "fp16",
        None,
        True,
        3,
        -3,
        0.5,
        (1, 2.0),
        (1, DType("fp16")),
        ("a", (None, "half")),
        FunctionRef("m:f"),
    )
    dtypes = tuple(map(DType, ("fp16", "bf16", "int8", "fp8e5", "int1")))
    names = tuple(f"name{number}" for number in range(60))
    tuples = {
        "x": "(*{dtype},(i32,none),=1.5,='a%20b')",
        "y": "tensordesc<{dtype}[64,32]>",
        "f": "=function:m:f",
        "n": "i64",
    }
    asked = {"n": "i32", "x_ptr": "*{dtype}", "m": "i32", "MODE": "constexpr", "KIND": "constexpr", "EVEN": "constexpr",
             "BLOCK": "constexpr", "LEVEL": "constexpr"}  # fmt: skip
    requires = ("arch >= 90 and n % BLOCK == 0", "dtype == 'fp16' or has(m) and MODE == \"zero\"",
                "KIND == 'fp16' and LEVEL > 1 and aligned(x_ptr, 16)", "dtype != 'fp32'")  # fmt: skip
    return [
        kernel("kinds", {**kinds, "n": "i32"}, hints=[{"n": 16}, {"n": 1, "p2": 16}]),
        kernel("values", {"n": "i32", "MODE": "constexpr"}, matrix={"MODE": values}, defaults={"MODE": 3}),
        kernel("dtypes", {"n": "i32", "KIND": "constexpr"}, matrix={"KIND": dtypes}, defaults={"KIND": DType("fp16")}),
        kernel("names", {"n": "i32", "NAME": "constexpr"}, matrix={"NAME": names}),
        kernel("tuples", tuples, matrix={"dtype": ["fp16", "bf16", "fp32"]}, hints=[{"x.0": 16, "n": 1}, {"n": 16}]),
        kernel("asked", asked, matrix={"dtype": ["fp16", "fp32"], "MODE": ["zero", "one"], "KIND": dtypes[:2]},
               configs=[{"BLOCK": 64 << at, "requires": words} for at, words in enumerate(requires)], defaults={"LEVEL": 2},
               derived={"EVEN": "n % BLOCK == 0 or MODE == 'zero'"}, hints=[{"x_ptr": 16, "n": 16}, {"n": 16}, {"m": 1}]),
    ]  # fmt: skip


def _measured(raw: bytes, key: list[str], programs: list[str], bucket: str) -> bytes:
    """Give a table a tuning whose key has these numbers, for all cases and two configs, with costs for every other case."""
    header, columns = split_table(raw)
    document = json.loads(header)
    cases, configs = len(document["cases"]), len(document["configs"])
    use = sorted({0, configs - 1})
    rows = [[[at] * len(key), use[::step], [0, 7][: len(use)]] for at, step in ((1, 1), (64, -1), (4096, 1))]
    costs = [[config, "key0 multiprocessors cdiv()"] for config in use]
    blocks = [{"cases": [case], "costs": costs if case % 2 else [], "rows": rows} for case in range(cases)]
    device = {"arch": "sm_90", "memory_bytes": 1 << 37, "multiprocessors": 132, "name": "NVIDIA H200"}
    document["tuning"] = {"bucket": bucket, "key": key, "tables": [{"blocks": blocks, "device": device}]}
    place = len(document["grid"]) + len(document["derived"])
    document["programs"][place:place] = programs
    return canonical(document) + columns


def rich_tables() -> list[bytes]:
    """Make tables that keep all rules, each followed by its numbers of rows and images; some without the length in front."""
    made = []
    for _, rows, raw in Parts.of(*_rich_kernels()).tables:
        tables = [raw, _measured(raw, ["n"], ["n"], "exact"), _measured(raw, ["n * n", "n"], ["n n *", "n"], "pow2"),
                  _measured(raw, ["n + 1"], ["n 1 +"], "quarter_pow2")]  # fmt: skip
        made += [table + struct.pack("<HH", rows, 1000) for table in tables]
    return made


def _parts(table: bytes) -> bytes:
    """Leave the length out of a table that may have it in front: the rest is laid out anew."""
    return table if table.startswith(b"{") else b"".join(split_table(table[:-4])) + table[-4:]


def _calls(tables: Sequence[bytes] = (), each: int = 4) -> list[bytes]:
    """Put calls before tables: bytes that decide what is passed."""
    draws = random.Random(1)
    return [draws.randbytes(128) + _parts(table) for table in tables or _tables() for _ in range(each)]


def _orders() -> list[bytes]:
    costs = b"key0 5 * key0 multiprocessors cdiv() 400 * 1 key0 key0 - // key0 key1 min() 7 +"
    draws = random.Random(1)
    return [bytes([keys, flat]) + draws.randbytes(300) + costs for keys in (0, 1, 2, 8) for flat in (0, 1)]


SEEDS = {
    "open": _bundles,
    "image": _images,
    "expr": _expressions,
    "table": _tables,
    "select": _calls,
    "tuning": _orders,
}
"""What makes the seeds of each target."""


def _broken_tables() -> list[bytes]:
    """Break each rule of a table, and spell constants in every way."""
    # pytest has no part in the other seeds
    from tests.abuse.test_table_rules import BROKEN, PACKED, PACKED_LIES

    made = []
    for parts, lies in ((golden_parts(), BROKEN), (Parts.of(PACKED), PACKED_LIES)):
        _, rows, raw = parts.tables[-1]
        header, columns = split_table(raw)
        for _, lie in lies.values():
            document = json.loads(header)
            lie(document)
            made.append(canonical(document) + columns + struct.pack("<HH", rows, 1000))
    floats = (
        "1e-05",
        "1.5e+300",
        "123456.789",
        "-0.0",
        "0.0001",
        "1e+16",
        "inf",
        "-inf",
        "nan",
        "5e-324",
        "0.30000000000000004",
    )
    document = json.loads(split_table(golden_parts().tables[1][2])[0])
    for text in (*floats, "%3D", "dtype:fp16", "function:m:f", "-18446744073709551615", "'%C3%A9%20'"):
        document["signatures"][0][0] = f"={text}"
        made.append(canonical(document) + bytes(32) + struct.pack("<HH", 1, 1))
    values = [
        {"float": "0x1.8p0"},
        {"tuple": [1, None, True, "a", {"dtype": "fp16"}]},
        {"float": "-0x0.0000000000001p-1022"},
    ]
    return [*made, *map(canonical, values)]


FURTHER = {"table": lambda: [*_broken_tables(), *rich_tables()], "select": lambda: _calls(rich_tables(), 16)}
"""More seeds for libFuzzer, too many to try mutations of each in a test."""


def write_seeds(target: str, folder: Path, *, further: bool = False) -> list[Path]:
    """Write each seed of a target to a file of its own; those of `FURTHER` too if asked."""
    folder.mkdir(parents=True, exist_ok=True)
    seeds = SEEDS[target]() + (FURTHER[target]() if further and target in FURTHER else [])
    paths = [folder / f"{target}-{number}" for number in range(len(seeds))]
    for path, seed in zip(paths, seeds, strict=True):
        path.write_bytes(seed)
    return paths


if __name__ == "__main__":
    write_seeds(sys.argv[1], Path(sys.argv[2]), further=True)
