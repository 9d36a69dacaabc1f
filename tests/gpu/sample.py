"""One launch of every kernel of `launch/`, without Triton and without pytest: short enough to run under a checker.

    nojit build tests/gpu/launch --arch sm_90 --profile full --out DIR
    PYTORCH_NO_CUDA_MEMORY_CACHING=1 compute-sanitizer --tool memcheck --report-api-errors no python -m tests.gpu.sample DIR [NAME...]

Says what it launches before it does; exits 1 where a result is wrong.
"""

# ruff: noqa: T201 - a script

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from nojit import runtime
from nojit.runtime.values import DType, FunctionRef

Launch = Callable[[str], Any]


def zeros(*shape: int, dtype: Any = torch.float32) -> Any:
    return torch.zeros(*shape, dtype=dtype, device="cuda")


def random(*shape: int, dtype: Any = torch.float32) -> Any:
    return torch.randn(*shape, device="cuda").to(dtype)


def blocks(tensor: Any, *block: int) -> runtime.TensorDescriptor:
    return runtime.TensorDescriptor.from_tensor(tensor, block)


def scalars(kernel: Launch) -> bool:
    ints, floats = zeros(9, dtype=torch.int64), zeros(4, dtype=torch.float64)
    kernel("scalars")[1,](ints, floats, -1, -2, -3, -4, 5, 6, 7, 8, True, 0.5, 0.25, 0.125, 2.0)
    return ints.tolist() == [-1, -2, -3, -4, 5, 6, 7, 8, 1] and floats.tolist() == [0.5, 0.25, 0.125, 2.0]


def arguments(kernel: Launch) -> bool:
    one, four, many = zeros(1), zeros(1), zeros(11)
    kernel("arguments_1")[1,](one)
    kernel("arguments_4")[1,](four, one, 5, 1.5)
    kernel("arguments_12")[1,](many, *(one,) * 5, 1, 2, 3, 4, 0.5, 0.25)
    most = zeros(29)
    kernel("arguments_30")[1,](most, *(one,) * 9, *range(15), *(0.5,) * 5)
    return four.item() == 68 and many[-1].item() == 0.25 and most[-1].item() == 0.5


def copies(kernel: Launch) -> bool:
    x, out = random(5000), zeros(5000)
    kernel("copy")(x, out, 5000)
    kernel("copy")(x[1:], out[1:], 4999)
    constant, optional = zeros(1), zeros(1)
    kernel("constant")[1,](x, constant)
    kernel("optional")[1,](x, None, optional)
    return torch.equal(out, x) and constant.item() == optional.item() == x[0].item()


def constexprs(kernel: Launch) -> bool:
    out = zeros(9)
    values = {"INT": 7, "FLOAT": 0.5, "BOOL": True, "WORD": "gelu", "MAYBE": None, "PAIR": (1, 2)}
    kernel("constexprs")[1,](out, **values, DTYPE=DType("fp16"), FUNCTION=FunctionRef("kernel.py:double"))
    return out[0].item() == 7


def tuples(kernel: Launch) -> bool:
    x, out = random(64), zeros(64)
    kernel("tuple")[1,]((x, (5, 0.75), None, True), out)
    kernel("pointers")[1,]((x, x, x), out, COUNT=3)
    return out[0].item() == x[0].item()


def descriptors(kernel: Launch) -> bool:
    good = []
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float8_e5m2, torch.int32):
        x, out = random(100, 80, dtype=dtype), zeros(100, 80, dtype=dtype)
        kernel("copy_2d")[2, 2](blocks(x, 64, 64), blocks(out, 64, 64))
        good.append(torch.equal(out.float(), x.float()))
    line, box = random(1000), random(9, 33, 64, dtype=torch.float16)
    line_out, box_out = torch.zeros_like(line), torch.zeros_like(box)
    kernel("copy_1d")[4,](blocks(line, 256), blocks(line_out, 256))
    kernel("copy_3d")[3, 3, 2](blocks(box, 4, 16, 32), blocks(box_out, 4, 16, 32))
    return all(good) and torch.equal(line, line_out) and torch.equal(box, box_out)


def matmuls(kernel: Launch) -> bool:
    a, b = random(256, 128, dtype=torch.float16), random(128, 128, dtype=torch.float16)
    out, block_out = zeros(256, 128, dtype=torch.float16), zeros(128, 128, dtype=torch.float16)
    pieces = (blocks(a, 128, 64), blocks(b, 128, 64), blocks(out, 128, 128))
    kernel("descriptor_matmul")[2, 1](*pieces, 128, BLOCK_M=128, BLOCK_N=128, BLOCK_K=64)
    kernel("matmul")(b, b, block_out, 128, BLOCK=128, BLOCK_K=64, num_stages=3, num_warps=8)
    return torch.allclose(out, a @ b.T, 1e-2, 1e-1) and torch.allclose(block_out, b @ b, 1e-2, 1e-1)


def scratch(kernel: Launch) -> bool:
    x, out = random(100, 192), zeros(100, 192)
    kernel("device_descriptors")(x, out, 100, 192)
    return torch.equal(out, x)


def clusters(kernel: Launch) -> bool:
    x, out, sums = random(6 * 2048), zeros(6 * 2048), zeros(6, dtype=torch.int32)
    for num_ctas in (1, 2, 4):
        kernel("cluster")[6,](x, out, sums, BLOCK=2048, num_ctas=num_ctas)
    return torch.equal(out, x * 2)


def dependent(kernel: Launch) -> bool:
    x, out = zeros(4096), zeros(4096)
    for _ in range(3):
        kernel("pdl")(x, out, 4096)
    return bool((out == 1).all())


def stages(kernel: Launch) -> bool:
    x, out = random(300, 1000), zeros(300, 1000)
    kernel("row_softmax")[64,](out, x, 1000, 1000, 300, 1000, BLOCK=1024, num_stages=4, num_warps=8)
    return torch.allclose(out, x.softmax(-1), 1e-4, 1e-6)


def cooperative(kernel: Launch) -> bool:
    counter, out = zeros(1, dtype=torch.int32), zeros(8, dtype=torch.int32)
    kernel("cooperative")[8,](counter, out)
    return out.tolist() == [8] * 8


SAMPLES = (
    scalars, arguments, copies, constexprs, tuples, descriptors, matmuls, scratch, clusters, dependent, stages,
    cooperative,
)  # fmt: skip


def main(words: list[str]) -> int:
    """Launch the samples that are named, all if none is."""
    bundle = runtime.load(words[0])
    wrong = 0
    for sample in SAMPLES:
        if words[1:] and sample.__name__ not in words[1:]:
            continue
        print(sample.__name__, flush=True)
        good = sample(bundle.kernel)
        torch.cuda.synchronize()
        if not good:
            wrong += 1
            print("  wrong", flush=True)
    print(f"{wrong} wrong")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
