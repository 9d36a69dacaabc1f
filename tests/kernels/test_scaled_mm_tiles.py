"""The cost model of products with scales of blocks knows which tile the manifest selects."""

from __future__ import annotations

import random
import tomllib
from pathlib import Path
from typing import Any

from nojit.kernels.scaled_mm.cost import _tile_of_parts
from nojit.runtime.expr import expression

MANIFEST = Path(__file__).resolve().parents[2] / "manifests/scaled_mm.toml"
SELECTION = ("when", "requires")


def selected(configs: list[dict[str, Any]], facts: dict[str, Any]) -> tuple[int, int]:
    """Return the tile of the first config whose conditions hold."""
    for config in configs:
        values = facts | {name: value for name, value in config.items() if name not in SELECTION}
        if all(expression.parse(config[name]).evaluate(values) for name in SELECTION if name in config):
            return config["BLOCK_M"], config["BLOCK_N"]
    raise AssertionError(f"no config serves {facts}")


def test_parts_of_scaled_blocks_are_costed_with_the_tile_that_the_manifest_selects() -> None:
    kernels = tomllib.loads(MANIFEST.read_text(encoding="utf-8"))["kernel"]
    configs = next(kernel["configs"] for kernel in kernels if kernel["name"] == "scaled_mm_sm90")
    draw = random.Random(1)
    for _ in range(500):
        rows = draw.choice([draw.randint(1, 70), draw.randint(1, 8192)])
        cols, parts = 16 * draw.randint(1, 1024), draw.randint(2, 16)
        processors = draw.choice([132, 114, 20])
        facts = {
            "m_len": rows, "n_len": cols, "k_len": 4096, "splits": parts, "programs": processors, "PANEL": 32,
            "ROWS": next((height for height in (16, 32) if rows <= height), 64), "SCALES": "tiles", "FAST": False,
            "a": "fp8e4nv", "b": "fp8e4nv", "out": "fp32",
        }  # fmt: skip
        assert _tile_of_parts(rows, cols, parts, processors) == selected(configs, facts), facts
