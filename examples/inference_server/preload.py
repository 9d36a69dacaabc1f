"""Preload the images that the model launches, in a thread, while torch is imported."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from nojit import runtime
from nojit.kernels import library

OWN = ("choose_first", "choose_next", "embed_rows", "place_heads")
"""Kernels of the example: kernel.py, decoder.toml."""
EVERYWHERE = (
    "bmm_merge",
    "flex_decoding_merge",
    "flex_decoding_one",
    "rms_norm_fwd",
    "swiglu",
    "swiglu_rectangles",
    *OWN,
)
"""Kernels that the model launches on any device."""
ON_HOPPER = ("bmm_few", "bmm_row", "bmm_sm90", "bmm_tiles_sm90", "flash_attention_fwd_sm90")
ELSEWHERE = ("bmm", "flash_attention_fwd")
FASTER = ("bmm_merge", "bmm_tiles_sm90")
"""Kernels that a bundle may lack, as those of the profile `core` do: others are launched instead."""


def launched(dim: int) -> Mapping[str, Any]:
    """Return the constexpr values of the variants that a model with heads of width `dim` launches."""
    # widths are rounded up to built ones: from 16 on, for decoding from 64
    width = max(16, 1 << (dim - 1).bit_length())
    widths = {width, max(width, 64)}
    return {
        "dtype": "bf16",
        "TRANS_A": False,
        "EPILOGUE": False,
        "SCORE_MOD": None,
        "PAGED": False,
        "DIM": dim,
        "BLOCK_D": widths,
        "BLOCK_DV": widths,
    }


def begin(ordinal: int, dim: int) -> AbstractContextManager[int]:
    """Start loading the images that a bf16 model with heads of width `dim` launches.

    Returns:
        A context that waits for the images when entered, and gives their number.
    """
    pool = ThreadPoolExecutor(1, "preload")
    loading = pool.submit(preload, ordinal, dim)
    pool.shutdown(wait=False)
    return _loaded(loading)


def preload(ordinal: int, dim: int) -> int:
    """Load the images that the model launches into the driver; return their number.

    Raises:
        KernelNotFoundError: no bundle holds one of the kernels.
        NoMatchingVariantError: a kernel has no variant for the device.
    """
    hopper = runtime.device_capability(ordinal) // 10 == 9
    names = (*EVERYWHERE, *(ON_HOPPER if hopper else ELSEWHERE))
    held = [name for name in names if name not in FASTER or library.has(name)]
    return sum(library.get(name).load_variants(ordinal, launched(dim)) for name in held)


@contextmanager
def _loaded(loading: Future[int]) -> Iterator[int]:
    """Wait for the images; return their number.

    Raises:
        RuntimeError: loading failed; the message has the reason.
    """
    try:
        count = loading.result()
    except Exception as error:
        raise RuntimeError(f"the kernels of the model could not be loaded: {error}") from error
    yield count
