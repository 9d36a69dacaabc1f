"""Launch the kernel from its bundle. Needs a GPU and torch; needs neither Triton nor a compiler."""

import sys

try:
    import torch
except ModuleNotFoundError:
    sys.exit("error: expected torch to be installed: pip install torch")
from nojit import runtime

bundle = runtime.load("artifacts/example")  # opens every bundle in the folder; a launch uses the one for its GPU
add = bundle.kernel("vector_add")

x = torch.randn(1_000_003, device="cuda")
y = torch.randn_like(x)
out = torch.empty_like(x)
add(x, y, out, x.numel())  # on torch's current stream, with the grid and config of the bundle

torch.testing.assert_close(out, x + y)
print(add.explain(x, y, out, x.numel()).chosen)  # dtype='fp32' BLOCK=1024 num_warps=4 num_stages=3 num_ctas=1
