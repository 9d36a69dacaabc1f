"""A kernel of a program with Triton's JIT: autotuned, with a heuristic. The build ignores both decorators."""

# ruff: noqa: ANN001, ANN201, N803 - types are the manifest's to say, and Triton's constexprs are written in capitals
# ruff: noqa: PLR0917 - a launch passes its facts by position, many of them
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

import triton
import triton.language as tl


@triton.autotune(
    configs=[
        triton.Config({"BLOCK_M": 1, "BLOCK_N": 1024}, num_warps=4),
        triton.Config({"BLOCK_M": 4, "BLOCK_N": 256}, num_warps=8, num_stages=2),
    ],
    key=["rows", "cols"],
)
@triton.heuristics({"EVEN": lambda args: args["cols"] % args["BLOCK_N"] == 0})
@triton.jit
def scale_rows_kernel(
    x_ptr,
    scale_ptr,
    bias_ptr,
    out_ptr,
    rows,
    cols,
    stride,
    ACTIVATION: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    EVEN: tl.constexpr,
):
    """Write ``activation(x * scale + bias)``: x and out [rows, cols]; `scale`, and `bias` unless None, have one value for each row."""
    row = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    scale = tl.load(scale_ptr + row, mask=row < rows)
    for start in range(0, cols, BLOCK_N):
        col = start + tl.arange(0, BLOCK_N)[None, :]
        # with EVEN, no step needs a mask
        inside = row < rows if EVEN else (row < rows) & (col < cols)
        place = row.to(tl.int64) * stride + col
        x = tl.load(x_ptr + place, mask=inside).to(tl.float32) * scale
        if bias_ptr is not None:
            x += tl.load(bias_ptr + row, mask=row < rows)
        if ACTIVATION == "relu":
            x = tl.maximum(x, 0.0)
        tl.store(out_ptr + place, x.to(out_ptr.dtype.element_ty), mask=inside)
