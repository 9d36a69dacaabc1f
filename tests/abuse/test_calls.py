"""Tables that are sealed right and lie: whatever they say, a call works or raises an error of ours, and never crashes."""

from __future__ import annotations

import os
from functools import partial
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from nojit import runtime
from nojit.runtime.errors import BundleError, BundleFormatError, NojitError

from tests.fakecuda import FakeCuda
from tests.support.bundles import Parts, kernel
from tests.support.hostile import read_everything
from tests.support.jsonlies import Document, NodePath, edit_table, get, nodes, put
from tests.support.mutation import Mutator

COUNT = int(os.environ.get("NOJIT_FUZZ_CALLS", "1500"))
SEED = int(os.environ.get("NOJIT_FUZZ_SEED", "1"))

# what may stand where another text stands
WORDS = (
    "",
    "n",
    "*fp128",
    "BLOCK",
    "zz",
    "n // 0",
    "n +",
    "x_ptr",
    "MODE == 'a'",
    "9" * 30,
    "sm_90",
    "i32",
    "num_warps",
    "has(n)",
    "\x7f",
)


@pytest.fixture(scope="module")
def parts() -> Parts:
    scale = kernel(
        "scale",
        {"x_ptr": "*{dtype}", "bias_ptr": "*{dtype}?", "n": "i32", "factor": "fp32", "BLOCK": "constexpr",
         "EVEN": "constexpr", "MODE": "constexpr"},
        matrix={"dtype": ["fp16"], "MODE": ["fast"]},
        configs=[{"BLOCK": 1024, "requires": "aligned(x_ptr, 16)"}, {"BLOCK": 64, "num_warps": 2}],
        hints=[{"x_ptr": 16}],
        derived={"EVEN": "n % BLOCK == 0"},
        defaults={"factor": 1.5},
        grid=["cdiv(n, BLOCK)"],
        launch={"global_scratch_bytes": 64, "global_scratch_align": 16, "shared_bytes": 50_000},
    )  # fmt: skip
    return Parts.of(scale)


def calls(handle: Any, faketorch: ModuleType) -> None:
    x, odd = faketorch.Tensor(0x4000, "float16", (64,)), faketorch.Tensor(0x4002, "float16", (64,))
    for arguments in ((x, None, 64, 2.5), (odd, x, 4097, 0.0), (x, x, 1, 1.0)):
        for call in (handle, handle[(3, 2)], handle.explain, partial(handle, num_warps=2)):
            try:
                call(*arguments, MODE="fast")
            except NojitError:
                continue


def test_the_bundle_itself_is_called_right(
    tmp_path: Path, parts: Parts, fakecuda: FakeCuda, faketorch: ModuleType
) -> None:
    path = tmp_path / "right.nojit"
    path.write_bytes(parts.seal())
    calls(runtime.load(path).kernel("scale"), faketorch)
    assert fakecuda.launch_count() == 9


@pytest.mark.parametrize("program", ["", "n +", "unknown", "n " * 2000])
def test_a_program_of_another_expression_is_refused_with_its_kernel(tmp_path: Path, parts: Parts, program: str) -> None:
    path = tmp_path / "odd.nojit"
    path.write_bytes(edit_table(parts, 0, lambda table: table.update(programs=[program] * len(table["programs"]))))
    loaded = runtime.load(path)
    with pytest.raises(BundleFormatError, match=r"got '.*' - at .*odd.nojit kernel scale") as caught:
        loaded.kernel("scale")
    assert caught.value.rule == "program"


def tuned(header: Document) -> None:
    """Have a table ordered by a key."""
    device = {"arch": "sm_90", "memory_bytes": 1 << 37, "multiprocessors": 132, "name": "H"}
    row = [[4096, 8192], [0, 1], [0, 7]]
    blocks = [{"costs": [[0, "key0 64 *"]], "cases": [0], "rows": [row]}]
    tables = [{"blocks": blocks, "device": device}]
    header["tuning"] = {"bucket": "quarter_pow2", "key": ["n", "n * 2"], "tables": tables}
    header["programs"][2:2] = ["n", "n 2 *"]


def test_a_text_that_is_let_through_raises_errors_of_ours_alone(
    tmp_path: Path, parts: Parts, fakecuda: FakeCuda, faketorch: ModuleType
) -> None:
    header: Document = {}
    edit_table(parts, 0, lambda table: (tuned(table), header.update(table)))
    texts = [place for place in nodes(header) if isinstance(get(header, place), str)]
    path = tmp_path / "odd.nojit"
    called = 0
    for place in texts:
        for word, program in product(WORDS, (None, "")):

            def lie(table: Document, place: NodePath = place, word: str = word, program: str | None = program) -> None:
                tuned(table)
                if program is not None:
                    table["programs"] = [program] * len(table["programs"])
                put(table, place, word)

            path.write_bytes(edit_table(parts, 0, lie))
            try:
                handle = runtime.load(path).kernel("scale")
            except BundleError:
                continue
            calls(handle, faketorch)
            called += 1
    assert called > len(texts)
    fakecuda.violations()


def test_a_lying_table_makes_no_call_crash(
    tmp_path: Path, parts: Parts, fakecuda: FakeCuda, faketorch: ModuleType
) -> None:
    mutator = Mutator(parts, SEED)
    called = 0
    for number in range(COUNT):
        mutant = mutator.table_mutant()
        path = tmp_path / f"{number}.nojit"
        path.write_bytes(mutant.data)
        try:
            read_everything(path)
        except BundleError:
            path.unlink()
            continue
        bundle = runtime.load(path)
        for name in bundle.kernels:
            try:
                handle = bundle.kernel(name)
            except NojitError:
                continue
            calls(handle, faketorch)
            called += 1
        bundle.close()
        path.unlink()
    assert called > COUNT // 20
    # what a lie made the driver refuse is the lie's doing
    fakecuda.violations()
