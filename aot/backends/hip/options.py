"""Compiler options that only Triton's backend for AMD takes."""

from __future__ import annotations

from typing import Final

from nojit.aot.backends.options import Option
from nojit.runtime.base.launch_options import BUILT_WITH

__all__ = ["OPTIONS"]

OPTIONS: Final[dict[str, Option]] = {
    "waves_per_eu": Option(
        BUILT_WITH["waves_per_eu"], int, "Waves for each SIMD, which limit registers; 0: any.", tuple(range(17))
    ),
    "matrix_instr_nonkdim": Option(
        BUILT_WITH["matrix_instr_nonkdim"], int, "Rows of a matrix instruction; 0: Triton chooses.", (0, 4, 16, 32)
    ),
    "kpack": Option(BUILT_WITH["kpack"], int, "Elements that a matrix instruction packs along K.", (1, 2)),
    "allow_flush_denorm": Option(BUILT_WITH["allow_flush_denorm"], bool, "Flush denormals of fp32 to zero."),
}
