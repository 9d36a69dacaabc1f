"""Small files that mean much: opening, a first call and verification cost at most a second, and ten times the file in memory.

Each file is as bad as the limits of the format allow, in one way: padded frames let it expand as far as it may. None takes a
second; what a second is, a loop says that is timed beside it.
"""

from __future__ import annotations

import gc
import os
import signal
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from nojit import runtime
from nojit.aot.inspect.verification import verify_bundle
from nojit.runtime.bundle.file import BundleFile
from nojit.runtime.errors import BundleFormatError, NojitError
from nojit.runtime.expr.postfix import postfix

from tests.fakecuda import FakeCuda
from tests.support.bundles import compress
from tests.support.costs import loop_seconds, measure
from tests.support.cubins import _INFO, _PROGBITS, _STRTAB, _SYMTAB, CubinSpec, _elf, _flags, _info, _Section
from tests.support.writer import CUBIN, SCRATCH, PlainKernel, header_of, launch_of, write_bundle

# of an empty loop
SECOND_STEPS = 90_000_000
MEMORY_BYTES = 32 << 20
MEMORY_TIMES = 10

Write = Callable[[], bytes]
CHEAP: dict[str, Write] = {}
HUGE: dict[str, Write] = {}


def cheap(write: Write) -> Write:
    """Say of a file that it is within the limits, or near them."""
    CHEAP[write.__name__.replace("_", " ")] = write
    return write


def huge(write: Write) -> Write:
    """Say of a file that it is past a limit."""
    HUGE[write.__name__.replace("_", " ")] = write
    return write


def padded(raw: bytes) -> bytes:
    """Compress so that what comes out is 31 times as long as what is stored: empty blocks fill up."""
    packed = compress(raw, 3)
    flags = packed[4]
    start = 5 + (not flags & 0x20) + (flags >> 6 != 0 or bool(flags & 0x20)) * (1 << (flags >> 6))
    missing = max(0, (len(raw) - 4000) // 31 - len(packed))
    return packed[:start] + bytes(3) * (missing // 3) + packed[start:]


def bundle(*kernels: PlainKernel, **index: Any) -> bytes:
    return write_bundle(*kernels, index=index, frame=padded)


def config(**facts: Any) -> dict[str, Any]:
    return {"constexprs": [], "options": [["num_warps", 4]], "requires": ""} | facts


def columns(rows: int, **facts: Any) -> list[Any]:
    """Write the columns of so many rows, all zero but for what is told."""
    names = ("case", "config", "hints", "derived", "launch", "image", "registers", "spill")
    return [facts.get(name, [32 * (name == "registers")] * rows) for name in names]


@cheap
def equal_cases_with_requires() -> bytes:
    n, configs = 32_700, [*[config(options=[])] * 10_499, config(requires="n == 4")]
    header = header_of(cases=[[0]] * n, configs=configs, programs=["1", "n 4 =="])
    return bundle(PlainKernel(header=header, columns=columns(n, case=range(n), config=[10_499] * n)))


@huge
def more_equal_cases() -> bytes:
    n = 100_000
    configs = [*[config()] * 59_999, config(requires="n == 4")]
    header = header_of(cases=[[0]] * n, configs=configs, programs=["1", "n 4 =="])
    return write_bundle(PlainKernel(header=header, columns=columns(n, case=range(n), config=[59_999] * n)))


@cheap
def many_cases_of_many_configs_with_requires() -> bytes:
    n = 32_640
    header = header_of(cases=[[0]] * 255, configs=[config(requires="n == 4")] * 255, programs=["1", *["n 4 =="] * 255])
    held = columns(n, case=[row // 255 for row in range(n)], config=[row % 255 for row in range(n)])
    return bundle(PlainKernel(header=header, columns=held))


@cheap
def requires_that_ask_for_each_case() -> bytes:
    n = 32_700
    header = header_of(
        axes=[{"is_type": True, "name": "T", "values": ["fp16", "fp32"]}],
        cases=[[0, row & 1] for row in range(n)],
        configs=[config(requires="n == 4 and T != n")],
        programs=["1", "n 4 == T n != and"],
    )
    return bundle(PlainKernel(header=header, columns=columns(n, case=range(n))))


@huge
def a_million_rows() -> bytes:
    n = 1_000_000
    header = header_of(configs=[config(options=[["s", i]]) for i in range(1000)], cases=[[0]] * 1000)
    held = columns(n, case=[row // 1000 for row in range(n)], config=[row % 1000 for row in range(n)])
    return write_bundle(PlainKernel(header=header, columns=held))


@cheap
def many_rows() -> bytes:
    n = 32_700
    header = header_of(configs=[config(options=[["s", i]]) for i in range(1000)], cases=[[0]] * 1000)
    held = columns(n, case=[row // 1000 for row in range(n)], config=[row % 1000 for row in range(n)])
    return bundle(PlainKernel(header=header, columns=held))


@huge
def four_thousand_long_layouts() -> bytes:
    layouts = [" ".join(["a:i8"] * 1024) + str(i) for i in range(4000)]
    return write_bundle(PlainKernel(header=header_of(layouts=[f"n:i32 {SCRATCH}", *layouts])))


@cheap
def long_layouts() -> bytes:
    layouts = [" ".join(["a:i8"] * 1023) + f" b{i}:i8" for i in range(240)]
    return bundle(PlainKernel(header=header_of(layouts=[f"n:i32 {SCRATCH}", *layouts])))


@cheap
def attachments_that_expand_far() -> bytes:
    return write_bundle(PlainKernel(), frame=padded, attachments=[(f"a{i:02}", bytes(4 << 20)) for i in range(64)])


@cheap
def groups_of_one_image() -> bytes:
    n = 8_000
    held = columns(n, hints=range(n), image=range(n))
    return bundle(PlainKernel(header=header_of(hint_sets=[[]] * n), images=[CUBIN] * n, group_images=1, columns=held))


@cheap
def many_images_in_one_group() -> bytes:
    n = 9_000
    held = columns(n, hints=range(n), image=range(n))
    return bundle(PlainKernel(header=header_of(hint_sets=[[]] * n), images=[CUBIN] * n, group_images=n, columns=held))


def symbols(count: int, chars: int) -> bytes:
    """Build an image of symbols whose names end alike: one is the end of the other."""
    entries = b"".join(struct.pack("<IBBHQQ", i % (chars - 300), 0x12, 0x10, 3, 0, 16) for i in range(count))
    strings = _Section(".strtab", _STRTAB, b"a" * chars + b"\0")
    table = _Section(".symtab", _SYMTAB, bytes(24) + entries, link=2, info=1, entry_bytes=24)
    return _elf([strings, table], _flags(90, "a", 8), 8)


@cheap
def overlapping_symbols() -> bytes:
    return bundle(PlainKernel(images=[symbols(32_700, 16_300)]))


@cheap
def more_overlapping_symbols() -> bytes:
    return write_bundle(PlainKernel(images=[symbols(65_000, 8_000)]))


@cheap
def records_of_images() -> bytes:
    info = _info(CubinSpec("k", (4, 8, 8)), 90) + b"\x01\x70\0\0" * 90_000
    symbol = bytes(24) + struct.pack("<IBBHQQ", 1, 0x12, 0x10, 3, 0, 16)
    sections = [
        _Section(".strtab", _STRTAB, b"\0k\0"),
        _Section(".symtab", _SYMTAB, symbol, link=2, info=1, entry_bytes=24),
        _Section(".text.k", _PROGBITS, bytes(16)),
        _Section(".nv.info.k", _INFO, info, info=4),
    ]
    image = _elf(sections, _flags(90, "a", 8) | 8, 8)
    images = [image + bytes([i]) for i in range(20)]
    held = columns(20, hints=range(20), image=range(20))
    return bundle(PlainKernel(images=images, header=header_of(hint_sets=[[]] * 20), columns=held))


@cheap
def many_kernels_in_the_index() -> bytes:
    section = {"raw_bytes": 0, "sha256": "0" * 64, "stored_bytes": 0}
    entry = {"groups": 0, "images": 0, "payload_bytes": 0, "table": section, "variants": 0}
    return write_bundle(index={"kernels": [entry | {"name": f"k{i:05}"} for i in range(4090)]})


@huge
def more_kernels_in_the_index() -> bytes:
    section = {"raw_bytes": 0, "sha256": "0" * 64, "stored_bytes": 0}
    entry = {"groups": 0, "images": 0, "payload_bytes": 0, "table": section, "variants": 0}
    return write_bundle(index={"kernels": [entry | {"name": f"k{i:05}"} for i in range(40_000)]})


@cheap
def kernels_that_expand() -> bytes:
    header, images = header_of(cases=[[0]] * 300), [CUBIN + bytes(2 << 10)]
    return bundle(*[PlainKernel(name=f"k{i:04}", images=images, header=header) for i in range(300)])


@huge
def kernels_that_expand_far() -> bytes:
    header = header_of(cases=[[0]] * 400_000)
    return write_bundle(*[PlainKernel(name=f"k{i}", header=header) for i in range(4)])


@huge
def images_that_expand_far() -> bytes:
    return write_bundle(*[PlainKernel(name=f"k{i}", images=[CUBIN + bytes(7 << 20)]) for i in range(8)])


POOLS: dict[str, tuple[Any, int]] = {
    "configs": (config(options=[]), 21_000),
    "derived_values": ([], 32_000),
    "hint_sets": ([], 32_000),
    "launches": (launch_of(), 4_900),
    "layouts": ("", 32_000),
    "cases": ([0], 32_000),
    "programs": ("", 32_000),
    "signatures": (["i32"], 32_000),
}


def pool(name: str, *, exact: bool) -> Write:
    """Fill one of the pools; make the table one that is read rule by rule, if told to."""

    def write() -> bytes:
        value, n = POOLS[name]
        header = header_of()
        header[name] = [*header[name], *[value] * n]
        if exact:
            header["configs"] = [*header["configs"], config(options=[], requires="\x7f")]
            header["programs"] = [*header["programs"], ""]
        return bundle(PlainKernel(header=header))

    return write


CHEAP |= {
    f"{name}, many{' and an odd text' * exact}": pool(name, exact=exact) for name in POOLS for exact in (False, True)
}


@cheap
def values_of_an_axis() -> bytes:
    values = [{"float": "0x1.8000000000000p+0"}] * 32_000
    return bundle(
        PlainKernel(header=header_of(axes=[{"is_type": True, "name": "n", "values": values}], cases=[[0, 0]]))
    )


@cheap
def expressions_of_many_types() -> bytes:
    axes = [{"is_type": True, "name": f"T{i}", "values": ["fp16", "fp32"]} for i in range(11)]
    requires = " and ".join(["n > 1", *[f"T{i} != n" for i in range(11)]])
    header = header_of(
        axes=axes,
        cases=[[0] * 12],
        configs=[config(requires=requires)],
        programs=["1", "n 1 >" + "".join(f" T{i} n != and" for i in range(11))],
    )
    return bundle(PlainKernel(header=header))


@cheap
def expressions_of_more_types() -> bytes:
    axes = [{"is_type": True, "name": f"T{i}", "values": ["fp16", "fp32"]} for i in range(40)]
    requires = " and ".join(["n > 1", *[f"T{i} != n" for i in range(40)]])
    words = "n 1 >" + "".join(f" T{i} n != and" for i in range(40))
    header = header_of(axes=axes, cases=[[0] * 41], configs=[config(requires=requires)], programs=["1", words])
    return write_bundle(PlainKernel(header=header))


def derived_facts(configs: int, words: int) -> bytes:
    names = [f"D{i}" for i in range(60)]
    params = [{"constexpr": name != "n", "default": [], "name": name} for name in ("n", *names)]
    header = header_of(
        params=params,
        derived=[{"expression": " + ".join(["n"] * words), "name": name} for name in names],
        derived_values=[[60] * 60],
        configs=[config(options=[["num_warps", 4], ["s", i]]) for i in range(configs)],
        programs=["1", *["n" + " n +" * (words - 1)] * 60],
    )
    return bundle(PlainKernel(header=header, columns=columns(configs, config=range(configs))))


@cheap
def derived_facts_of_configs() -> bytes:
    return derived_facts(75, 14)


@huge
def more_derived_facts_of_configs() -> bytes:
    return derived_facts(4000, 60)


def tuned(blocks: list[Any], cases: int, configs: int) -> bytes:
    device = {"arch": "sm_90", "memory_bytes": 1, "multiprocessors": 1, "name": "x"}
    header = header_of(
        tuning={"bucket": "exact", "key": ["n"], "tables": [{"blocks": blocks, "device": device}]},
        cases=[[0]] * cases,
        configs=[config(options=[])] * configs,
        programs=["1", "n"],
    )
    n = cases * configs
    held = columns(n, case=[i // configs for i in range(n)], config=[i % configs for i in range(n)])
    return bundle(PlainKernel(header=header, columns=held))


@cheap
def tuned_rows_for_many_cases() -> bytes:
    rows = [[[2 * i], [0, 1], [0, 1]] for i in range(4400)]
    return tuned([{"cases": [*range(6900)], "costs": [], "rows": rows}], 6900, 2)


@cheap
def tuned_rows_of_many_configs() -> bytes:
    rows = [[[1_000_000 + i], [(i * 60 + j) % 7000 for j in range(60)], [0] * 60] for i in range(240)]
    return tuned([{"cases": [0], "costs": [], "rows": rows}], 2, 7000)


@cheap
def tuned_blocks() -> bytes:
    return tuned([{"cases": [i], "costs": [], "rows": [[[1], [0], [0]]]} for i in range(6000)], 6000, 1)


def many_expressions(kernels: int, configs: int, words: int) -> bytes:
    texts = [" and ".join(f"n>{i}" for i in range(start, start + words)) for start in range(configs)]
    header = header_of(configs=[config(requires=each) for each in texts], programs=["1", *map(postfix, texts)])
    return write_bundle(*[PlainKernel(name=f"k{i}", header=header) for i in range(kernels)])


@cheap
def long_expressions() -> bytes:
    return many_expressions(4, 16, 340)


@huge
def more_long_expressions() -> bytes:
    return many_expressions(1, 400, 400)


def wide(params: int = 60, **facts: Any) -> dict[str, Any]:
    names = [f"p{i}" for i in range(params)]
    return header_of(
        params=[{"constexpr": False, "default": [], "name": name} for name in names],
        signatures=[["i32"] * params],
        layouts=[" ".join(f"{name}:i32" for name in names) + f" {SCRATCH}"],
        **facts,
    )


@cheap
def calls_that_nothing_serves() -> bytes:
    n = 20_000
    return bundle(PlainKernel(header=wide(cases=[[0]] * n), columns=columns(n, case=range(n))))


@cheap
def calls_that_need_other_types_of_many() -> bytes:
    axes = [{"is_type": True, "name": f"T{i}", "values": ["i32", "i16"]} for i in range(60)]
    header = wide(250, axes=axes, cases=[[0] * 61] * 900)
    return bundle(PlainKernel(header=header, columns=columns(900, case=range(900))))


@cheap
def hints_that_nothing_meets() -> bytes:
    n = 32_700
    header = header_of(hint_sets=[[["n", 16]]], cases=[[0]] * n)
    return bundle(PlainKernel(header=header, columns=columns(n, case=range(n))))


@cheap
def rows_of_long_tuples() -> bytes:
    n = 6900
    header = header_of(
        signatures=[["(" + ",".join(["i8"] * 200) + ")"]],
        hint_sets=[[["n.0", 16]]] * n,
        layouts=[" ".join(f"n.{i}:i8" for i in range(200)) + f" {SCRATCH}"],
    )
    return bundle(PlainKernel(header=header, columns=columns(n, hints=range(n))))


@cheap
def long_constants() -> bytes:
    n = 250
    types = [f"='{'a' * 8000}{i}'" for i in range(n)]
    header = header_of(signatures=[[each] for each in types], cases=[[i] for i in range(n)], layouts=[SCRATCH])
    return bundle(PlainKernel(header=header, columns=columns(n, case=range(n))))


def first_call(path: Path) -> None:
    with runtime.load(path) as loaded:
        kernel = loaded.kernel("k")
        kernel(*[5 if param == "n" else 1 << 40 for param in kernel.arg_names if param[0] in "np"])


def first_call_of_a_config(path: Path) -> None:
    with runtime.load(path) as loaded:
        loaded.kernel("k")(5, num_warps=4)


def open_it(path: Path) -> None:
    with runtime.load(path) as loaded:
        for name in [*loaded.kernels][:1]:
            loaded.kernel(name)


def verify(path: Path) -> None:
    with BundleFile(path) as opened:
        verify_bundle(opened)


USES = (open_it, first_call, first_call_of_a_config, verify)


def outcome(use: Callable[[Path], None], path: Path, libcuda: str) -> str:
    """Return what came of it: the rule that a bundle breaks, the name of another error, or nothing."""
    os.environ["NOJIT_LIBCUDA"] = libcuda
    try:
        use(path)
    except NojitError as error:
        return error.rule if isinstance(error, BundleFormatError) else type(error).__name__
    return ""


@pytest.mark.parametrize("case", CHEAP | HUGE)
def test_a_small_file_costs_little(tmp_path: Path, fakecuda: FakeCuda, case: str) -> None:
    path = tmp_path / "x.nojit"
    path.write_bytes((CHEAP | HUGE)[case]())
    memory = max(MEMORY_BYTES, MEMORY_TIMES * path.stat().st_size)
    second = loop_seconds(SECOND_STEPS)
    costs = {use.__name__: measure(outcome, use, path, str(fakecuda.path)) for use in USES}
    # a machine that got slower meanwhile is no fault of the file
    second = max(second, loop_seconds(SECOND_STEPS))
    for name, (seconds, peak_bytes, _) in costs.items():
        assert seconds < second, name
        assert peak_bytes < memory, name
    if case in HUGE:
        assert costs["verify"].result == "size"


@pytest.mark.parametrize("part", range(1, 5))
@pytest.mark.parametrize("case", ["equal cases with requires", "hints that nothing meets"])
@pytest.mark.usefixtures("fakecuda")
def test_a_long_first_call_can_be_interrupted(tmp_path: Path, case: str, part: int) -> None:
    path = tmp_path / "x.nojit"
    path.write_bytes(CHEAP[case]())
    heard: list[float] = []

    def interrupt(*_: Any) -> None:
        heard.append(time.process_time())
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGVTALRM, interrupt)
    # an exception in a callback of the collector is lost
    gc.disable()
    start = time.process_time()
    signal.setitimer(signal.ITIMER_VIRTUAL, 0.02 * part)
    try:
        with pytest.raises(KeyboardInterrupt):
            first_call(path)
    finally:
        gc.enable()
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    assert heard[0] - start < 0.02 * part + loop_seconds(SECOND_STEPS) / 10
