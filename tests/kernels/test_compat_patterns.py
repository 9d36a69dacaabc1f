"""DeepSpeed's patterns: small ones written down by hand, and many against a restatement block by block."""

from __future__ import annotations

import random
from dataclasses import asdict
from inspect import signature
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from nojit.kernels.compat import deepspeed
from nojit.kernels.compat.deepspeed import (
    BigBirdSparsityConfig,
    BSLongformerSparsityConfig,
    DenseSparsityConfig,
    FixedSparsityConfig,
    LocalSlidingWindowSparsityConfig,
    SparsityConfig,
    VariableSparsityConfig,
)
from torch import Tensor

DIRECTIONS = ["bidirectional", "unidirectional"]


def picture(layout: Tensor) -> list[str]:
    """Draw a head's blocks, a word for each row."""
    return ["".join(".#"[int(block)] for block in row) for row in layout]


def drawn(config: SparsityConfig, blocks: int, head: int = 0) -> str:
    return " ".join(picture(config.make_layout(blocks * config.block)[head]))


@pytest.mark.parametrize(
    ("config", "rows"),
    [
        (DenseSparsityConfig(2), "### ### ###"),
        (LocalSlidingWindowSparsityConfig(1), "#.. ##. .##"),
        (LocalSlidingWindowSparsityConfig(1, 16, 3, "bidirectional"), "##. ### .##"),
        (LocalSlidingWindowSparsityConfig(1, 16, 2), "#.. ##. .##"),
        # the last window is cut short, and its global block moves into it
        (FixedSparsityConfig(1, num_local_blocks=2), "##.## ##.## .#### .#### .#.##"),
        (FixedSparsityConfig(1, num_local_blocks=2, attention="unidirectional"), "#.... ##... .##.. .###. .#.##"),
        (
            FixedSparsityConfig(1, num_local_blocks=2, horizontal_global_attention=True),
            "##.## ##### .#### ##### #####",
        ),
        (BigBirdSparsityConfig(1, num_random_blocks=0), "#### ###. #### #.##"),
        (BigBirdSparsityConfig(1, num_random_blocks=0, attention="unidirectional"), "#... ##.. ###. #.##"),
        (BSLongformerSparsityConfig(1), "#### ###. #### #.##"),
        (BSLongformerSparsityConfig(1, global_block_indices=(2, 9)), "###. ###. #### ..##"),
        (
            BSLongformerSparsityConfig(
                1, num_sliding_window_blocks=1, global_block_indices=(2,), global_block_end_indices=(9,)
            ),
            "#.## .### #### ####",
        ),
        (BSLongformerSparsityConfig(1, attention="unidirectional"), "#... ##.. ###. #.##"),
        (VariableSparsityConfig(1, local_window_blocks=(1, 2)), "#.... ###.. ###.. #..## #..##"),
        (
            VariableSparsityConfig(
                1, local_window_blocks=(1, 2), global_block_indices=(1,), attention="unidirectional"
            ),
            "#.... .#... .##.. .#.#. .#.##",
        ),
        (
            VariableSparsityConfig(
                1,
                local_window_blocks=(1,),
                global_block_indices=(0, 3),
                global_block_end_indices=(1, 5),
                horizontal_global_attention=True,
            ),
            "#### ##.# #.## ####",
        ),
        (VariableSparsityConfig(1, local_window_blocks=(1,), global_block_indices=(-1,)), "#.# .## ..#"),
    ],
    ids=repr,
)
def test_a_small_pattern_is_the_one_drawn(config, rows):
    assert drawn(config, len(rows.split())) == rows


def test_heads_take_turns_with_their_global_blocks():
    config = FixedSparsityConfig(3, different_layout_per_head=True, num_local_blocks=2, num_different_global_patterns=2)
    assert [drawn(config, 4, head) for head in range(3)] == [
        "##.# ##.# .### .###",
        "###. ###. #.## #.##",
        "##.# ##.# .### .###",
    ]


def slow_layout(config: Any, blocks: int) -> Tensor:
    """Say block by block which are there, drawing in the order of rows within heads."""
    layout = torch.zeros(config.num_heads, blocks, blocks, dtype=torch.int64)
    causal = getattr(config, "attention", "") == "unidirectional"
    for head in range(config.num_heads if config.different_layout_per_head else 1):
        drawn = {}
        for row in range(blocks if getattr(config, "num_random_blocks", None) is not None else 0):
            limit = row + 1 if causal and isinstance(config, BigBirdSparsityConfig) else blocks
            drawn[row] = random.sample(range(limit), config.num_random_blocks)
        for row in range(blocks):
            for col in range(blocks):
                layout[head, row, col] = col in drawn.get(row, ()) or rule(
                    config, head, row, col, blocks, causal=causal
                )
    if not config.different_layout_per_head:
        for head in range(1, config.num_heads):
            layout[head] = layout[0]
    return layout


def rule(config: Any, head: int, row: int, col: int, blocks: int, *, causal: bool) -> bool:
    """Say whether a block that was not drawn is there."""
    if isinstance(config, BigBirdSparsityConfig):
        near = abs(row - col) <= config.num_sliding_window_blocks // 2
        return (near or min(row, col) < config.num_global_blocks) and (col <= row or not causal)
    if isinstance(config, BSLongformerSparsityConfig):
        near = abs(row - col) <= config.num_sliding_window_blocks // 2
        return (near or is_global(config, row) or is_global(config, col)) and (col <= row or not causal)
    if isinstance(config, VariableSparsityConfig):
        local = window_of(config, row) == window_of(config, col) and (col <= row or not causal)
        seen = any(start <= col < end and (row >= start or not causal) for start, end in ranges(config))
        return local or seen or (config.horizontal_global_attention and is_global(config, row))
    assert isinstance(config, FixedSparsityConfig)
    size = config.num_local_blocks
    local = row // size == col // size and (col <= row or not causal)
    first = size - (1 + head % config.num_different_global_patterns) * config.num_global_blocks
    for window in range(0, blocks, size):
        start = window + first
        if window + size > blocks:
            start = min(start, blocks - config.num_global_blocks)
        if start <= col < start + config.num_global_blocks and (row >= start or not causal):
            return True
        if config.horizontal_global_attention and start <= row < start + config.num_global_blocks:
            return True
    return local


def ranges(config: Any) -> list[tuple[int, int]]:
    ends = config.global_block_end_indices or [start + 1 for start in config.global_block_indices]
    return list(zip(config.global_block_indices, ends, strict=True))


def is_global(config: Any, block: int) -> bool:
    return any(start <= block < end for start, end in ranges(config))


def window_of(config: Any, block: int) -> int:
    """Count the windows that end before a block."""
    sizes = list(config.local_window_blocks)
    window, end = 0, sizes[0]
    while end <= block:
        window += 1
        end += sizes[min(window, len(sizes) - 1)]
    return window


@st.composite
def configs(draw: st.DrawFn) -> tuple[SparsityConfig, int]:
    """Draw a config and a number of blocks that it has layouts for."""
    blocks = draw(st.integers(4, 14))
    few, heads = st.integers(1, 4), draw(st.integers(1, 3))
    shared: dict[str, Any] = {
        "num_heads": heads,
        "block": 16,
        "different_layout_per_head": draw(st.booleans()),
        "attention": draw(st.sampled_from(DIRECTIONS)),
    }
    kind = draw(st.sampled_from(["fixed", "variable", "bigbird", "longformer"]))
    starts = draw(st.lists(st.integers(0, 16), min_size=1, max_size=3))
    places = {
        "global_block_indices": starts,
        "global_block_end_indices": draw(st.sampled_from([None, [start + draw(few) for start in starts]])),
    }
    horizontal = shared["attention"] == "bidirectional" and draw(st.booleans())
    if kind == "fixed":
        wide = draw(few)
        turns = draw(st.integers(1, 3))
        many = draw(st.integers(1, turns)) if shared["different_layout_per_head"] else 1
        config: SparsityConfig = FixedSparsityConfig(
            **shared,
            num_local_blocks=wide * turns,
            num_global_blocks=wide,
            horizontal_global_attention=horizontal,
            num_different_global_patterns=many,
        )
    elif kind == "variable":
        config = VariableSparsityConfig(
            **shared,
            **places,
            num_random_blocks=draw(st.integers(0, 3)),
            local_window_blocks=draw(st.lists(few, min_size=1, max_size=3)),
            horizontal_global_attention=horizontal,
        )
    elif kind == "bigbird":
        # the first row of a causal pattern has one block to draw from
        config = BigBirdSparsityConfig(
            **shared,
            num_random_blocks=draw(st.integers(0, 1 if shared["attention"] == "unidirectional" else 3)),
            num_sliding_window_blocks=draw(few),
            num_global_blocks=draw(few),
        )
    else:
        config = BSLongformerSparsityConfig(**shared, **places, num_sliding_window_blocks=draw(few))
    return config, blocks


@given(configs(), st.integers(0, 2**32))
def test_a_pattern_is_its_restatement(drawn, seed):
    config, blocks = drawn
    random.seed(seed)
    layout = config.make_layout(blocks * config.block)
    after = random.random()
    random.seed(seed)
    assert torch.equal(layout, slow_layout(config, blocks)), picture(layout[0])
    assert random.random() == after
    assert layout.dtype == torch.int64


SIGNATURES = {
    "SparsityConfig": "num_heads block=16 different_layout_per_head=False",
    "DenseSparsityConfig": "num_heads block=16 different_layout_per_head=False",
    "FixedSparsityConfig": "num_heads block=16 different_layout_per_head=False num_local_blocks=4 num_global_blocks=1"
    " attention='bidirectional' horizontal_global_attention=False num_different_global_patterns=1",
    "VariableSparsityConfig": "num_heads block=16 different_layout_per_head=False num_random_blocks=0"
    " local_window_blocks=(4,) global_block_indices=(0,) global_block_end_indices=None attention='bidirectional'"
    " horizontal_global_attention=False",
    "BigBirdSparsityConfig": "num_heads block=16 different_layout_per_head=False num_random_blocks=1"
    " num_sliding_window_blocks=3 num_global_blocks=1 attention='bidirectional'",
    "BSLongformerSparsityConfig": "num_heads block=16 different_layout_per_head=False num_sliding_window_blocks=3"
    " global_block_indices=(0,) global_block_end_indices=None attention='bidirectional'",
    "LocalSlidingWindowSparsityConfig": "num_heads block=16 num_sliding_window_blocks=3 attention='unidirectional'",
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_the_signature_is_deepspeeds(name):
    parameters = signature(getattr(deepspeed, name)).parameters.values()
    said = [p.name if p.default is p.empty else f"{p.name}={p.default!r}" for p in parameters]
    assert " ".join(said) == SIGNATURES[name]


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: DenseSparsityConfig(1).make_layout(40), ValueError, "Sequence Length, 40, needs to be dividable by Block size 16!"),
        (lambda: SparsityConfig(4).make_layout(64), NotImplementedError, "SparsityConfig has no pattern of its own"),
        (lambda: FixedSparsityConfig(1, num_local_blocks=3, num_global_blocks=2), ValueError, "in a local window, 3, must be dividable by number of global blocks, 2!"),
        (lambda: FixedSparsityConfig(1, attention="both"), NotImplementedError, 'only "uni/bi-directional" attentions are supported for now!'),
        (lambda: LocalSlidingWindowSparsityConfig(1, attention="both"), NotImplementedError, "attentions are supported for now!"),
        (lambda: FixedSparsityConfig(1, attention="unidirectional", horizontal_global_attention=True), ValueError, 'only "bi-directional" attentions can support horizontal global attention!'),
        (lambda: FixedSparsityConfig(1, num_different_global_patterns=2), ValueError, "Set different_layout_per_head to True."),
        (lambda: FixedSparsityConfig(1, 16, True, num_different_global_patterns=5), ValueError, "5, cannot be larger than number of local window blocks divided by number of global blocks, 4 / 1 = 4!"),
        (lambda: VariableSparsityConfig(1, global_block_end_indices=(1, 2)), ValueError, "start indices length, 1, must be same as global block end indices length, 2!"),
        (lambda: BSLongformerSparsityConfig(1, global_block_indices=(3,), global_block_end_indices=(3,)), ValueError, "Global block start index, 3, must be smaller than global block end index, 3!"),
        (lambda: VariableSparsityConfig(1, local_window_blocks=()), ValueError, "local_window_blocks: expected positive sizes, got []"),
        (lambda: VariableSparsityConfig(1, num_random_blocks=5).make_layout(64), ValueError, "Number of random blocks, 5, must be smaller than overall number of blocks in a row, 4!"),
        (lambda: BigBirdSparsityConfig(1, num_global_blocks=5).make_layout(64), ValueError, "Number of global blocks, 5,"),
        (lambda: LocalSlidingWindowSparsityConfig(1).make_layout(32), ValueError, "Number of sliding window blocks, 3,"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_in_deepspeeds_words(make, error, words):
    with pytest.raises(error) as caught:
        make()
    assert words in str(caught.value)


def test_a_pattern_of_ones_own():
    class Diagonal(SparsityConfig):
        def __init__(self, num_heads):
            super().__init__(num_heads, block=32)

        def make_layout(self, seq_len):
            layout = self.setup_layout(seq_len)
            layout[0].fill_diagonal_(1)
            return self.check_and_propagate_first_head_layout(layout)

    assert torch.equal(Diagonal(3).make_layout(128), torch.eye(4, dtype=torch.int64).expand(3, 4, 4))
    assert asdict(Diagonal(3))["block"] == 32
