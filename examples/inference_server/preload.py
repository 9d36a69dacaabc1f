"""The images that the model launches from bundles: loaded into the driver by a thread, while torch is still being imported."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from nojit import runtime
from nojit.kernels import library

OWN = ("choose_first", "choose_next", "embed_rows", "place_heads")
"""The kernels that the example brings: kernel.py, decoder.toml."""
EVERYWHERE = ("bmm_merge", "flex_decoding", "flex_decoding_merge", "rms_norm_fwd", "swiglu", "swiglu_rectangles", *OWN)
"""The kernels that the model launches on any device."""
ON_HOPPER = ("bmm_sm90", "flash_attention_fwd_sm90")
ELSEWHERE = ("bmm", "flash_attention_fwd")


def launched(dim: int) -> Mapping[str, Any]:
    """Say which variants a model launches that has heads of width `dim`: values of constexprs, of the kernels that have them."""
    # widths are rounded up to what is built: from 16 on, for decoding from 64
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
    """Begin to load what a model in bf16 launches that has heads of width `dim`: all else can be done meanwhile.

    Returns:
        What waits for it when it is entered, and gives how many images that were.
    """
    pool = ThreadPoolExecutor(1, "preload")
    loading = pool.submit(preload, ordinal, dim)
    pool.shutdown(wait=False)
    return _loaded(loading)


def preload(ordinal: int, dim: int) -> int:
    """Load the images that the model launches into the driver; return how many.

    Raises:
        KernelNotFoundError: no bundle at hand holds one of the kernels.
        NoMatchingVariantError: one has nothing for the device.
    """
    hopper = runtime.device_capability(ordinal) // 10 == 9
    names = (*EVERYWHERE, *(ON_HOPPER if hopper else ELSEWHERE))
    return sum(library.get(name).load_variants(ordinal, launched(dim)) for name in names)


@contextmanager
def _loaded(loading: Future[int]) -> Iterator[int]:
    """Wait for the images; give how many.

    Raises:
        RuntimeError: they cannot be loaded, and why.
    """
    try:
        count = loading.result()
    except Exception as error:
        raise RuntimeError(f"the kernels of the model could not be loaded: {error}") from error
    yield count
