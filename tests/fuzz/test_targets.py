"""Each fuzz target runs clean under sanitizers over its seeds, with each allocation failing once, and over mutations of them.

``tests/fuzz/run.sh`` goes further.
"""

from __future__ import annotations

import os
import struct
import subprocess
from pathlib import Path

import pytest
from nojit.runtime import _core
from nojit.runtime.table.reading import check_table, decode_table

from tests.fuzz.seeds import SEEDS, rich_tables, write_seeds
from tests.support.engine import FLAGS, sanitizing_compiler

HERE = Path(__file__).parent
MUTATIONS = os.environ.get("NOJIT_FUZZ_MUTATIONS", "2000")
ALLOCATIONS = ("malloc", "calloc", "realloc")


def test_every_target_has_seeds() -> None:
    assert set(SEEDS) == {path.stem for path in HERE.glob("*.c")} - {"main", "starve"}


def test_rich_tables_keep_all_rules(tmp_path: Path) -> None:
    assert len(write_seeds("select", tmp_path, further=True)) > len(SEEDS["select"]())
    for table in rich_tables():
        raw, (rows, images) = table[:-4], struct.unpack("<HH", table[-4:])
        if raw.startswith(b"{"):
            wide = 4 * len(_core.COLUMNS) * rows
            json, columns = raw[:-wide], raw[-wide:]
            raw = struct.pack("<I", len(json)) + json + b" " * (-len(json) % 4) + columns
        check_table(decode_table(raw, "k", rows, images, "seed"), "seed")


@pytest.fixture(scope="module")
def engine(sanitized_engine: list[Path], tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Objects of the engine whose allocations are those of starve.c."""
    folder = tmp_path_factory.mktemp("starved")
    renamed = [f"--redefine-sym={name}=fuzz_{name}" for name in ALLOCATIONS]
    for path in sanitized_engine:
        subprocess.run(["objcopy", *renamed, path, folder / path.name], check=True)
    return sorted(folder.iterdir())


@pytest.mark.parametrize("target", sorted(SEEDS))
def test_a_target_finds_nothing(target: str, engine: list[Path], tmp_path: Path) -> None:
    program = tmp_path / target
    sources = map(str, [*(HERE / f"{name}.c" for name in (target, "main", "starve")), *engine])
    command = [*sanitizing_compiler(), "-std=c11", *FLAGS, *sources, "-ldl", "-lm", "-lpthread", "-o", str(program)]
    subprocess.run(command, check=True)
    seeds = write_seeds(target, tmp_path / "seeds")
    done = subprocess.run(
        [program, "--starve", "--mutations", MUTATIONS, *seeds], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout == f"{len(seeds) * (int(MUTATIONS) + 1)} inputs\n"
