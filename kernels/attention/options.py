"""The argument ``kernel_options`` of flex attention and flex decoding: a config, and hints for torch's kernels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from nojit.kernels.calls.arguments import check_choice, check_flags, check_int, refuse_type, refuse_value
from nojit.runtime.base.suggestions import did_you_mean

__all__ = ["OPTIONS", "check_options", "check_torchs_options"]

OPTIONS: Final = ("BLOCK_M", "BLOCK_N", "num_warps", "num_stages")
"""Keys that the argument `kernel_options` accepts as a config."""
_HINTS: Final = ("ROWS_GUARANTEED_SAFE", "BLOCKS_ARE_CONTIGUOUS", "WRITE_DQ", "USE_TMA")
"""Keys of `kernel_options` that are performance hints for torch's kernels: accepted without effect."""


def check_options(options: object) -> dict[str, int]:
    """Return the config that `kernel_options` gives, option by option.

    Raises:
        ArgumentError: not a mapping, or a value that is not an int.
        ValueError: an unknown key.
    """
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        refuse_type("kernel_options", "a mapping", type(options).__name__)
    given: dict[str, Any] = dict(options)
    for name, value in given.items():
        if name not in OPTIONS:
            refuse_value("kernel_options", " or ".join(OPTIONS), f"{name!r}{did_you_mean(str(name), OPTIONS)}")
        check_int(f"kernel_options[{name!r}]", value)
    return given


def check_torchs_options(options: object) -> tuple[dict[str, int], bool]:
    """Return the config in torch's `kernel_options`, and whether the options allow flex decoding for few queries.

    Raises:
        ArgumentError: not a mapping, or a value of a wrong type.
        ValueError: an unknown key, an unsupported backend or rounding.
    """
    if not isinstance(options, Mapping):
        return check_options(options), True
    given = dict(options)
    backend = given.pop("BACKEND", "AUTO")
    check_choice("kernel_options['BACKEND']", backend, ("AUTO", "TRITON"))
    forced, prescaled = given.pop("FORCE_USE_FLEX_ATTENTION", False), given.pop("PRESCALE_QK", False)
    flags = {"FORCE_USE_FLEX_ATTENTION": forced, "PRESCALE_QK": prescaled}
    flags |= {name: given.pop(name) for name in _HINTS if name in given}
    check_flags(**{f"kernel_options[{name!r}]": flag for name, flag in flags.items()})
    if prescaled:
        refuse_value("kernel_options['PRESCALE_QK']", "False, as products are scaled in fp32", prescaled)
    # as in torch, options for the forward pass take precedence
    own = {name.removeprefix("fwd_"): given.pop(name) for name in list(given) if str(name).startswith("fwd_")}
    config = check_options(given | own)
    return config, not (config or forced or backend == "TRITON")
