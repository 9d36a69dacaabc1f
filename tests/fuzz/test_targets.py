"""Each fuzz target runs clean under sanitizers over its seeds, with each allocation failing once, and over mutations of them.

``tests/fuzz/run.sh`` goes further.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from nojit.runtime import _core
from nojit.runtime.table.reading import check_table, decode_table

from tests.fuzz.seeds import SEEDS, rich_tables, write_seeds

HERE = Path(__file__).parent
ENGINE = HERE.parents[1] / "runtime/engine"
MUTATIONS = os.environ.get("NOJIT_FUZZ_MUTATIONS", "2000")
# it sees more kinds of undefined behaviour than gcc
COMPILER = shutil.which("clang") or "gcc"
SANITIZE = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
# the engine's allocations are those of starve.c
STARVE = [f"-D{name}=fuzz_{name}" for name in ("malloc", "calloc", "realloc")]


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
def engine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile the engine under sanitizers, once."""
    folder = tmp_path_factory.mktemp("engine")
    flags = ["-std=c11", "-O1", "-g", "-c", *SANITIZE, *STARVE, f"-I{ENGINE}", f"-I{ENGINE}/include"]
    # files of two folders may have one name
    for part in sorted({path.parent for path in ENGINE.rglob("*.c")}):
        (folder / part.name).mkdir()
        subprocess.run([COMPILER, *flags, *map(str, part.glob("*.c"))], cwd=folder / part.name, check=True)
    return folder


@pytest.mark.parametrize("target", sorted(SEEDS))
def test_a_target_finds_nothing(target: str, engine: Path, tmp_path: Path) -> None:
    program = tmp_path / target
    own = [str(HERE / f"{name}.c") for name in (target, "main", "starve")]
    sources = [*own, *map(str, engine.rglob("*.o"))]
    flags = ["-std=c11", "-O1", "-g", *SANITIZE, f"-I{ENGINE}", f"-I{ENGINE}/include"]
    subprocess.run([COMPILER, *flags, *sources, "-ldl", "-lm", "-lpthread", "-o", str(program)], check=True)
    seeds = write_seeds(target, tmp_path / "seeds")
    done = subprocess.run(
        [program, "--starve", "--mutations", MUTATIONS, *seeds], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout == f"{len(seeds) * (int(MUTATIONS) + 1)} inputs\n"
