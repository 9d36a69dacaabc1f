"""Device functions of sm_90 products whose tiles have a number of columns that is no power of two.

A tensor has a power of two of columns. So each consumer keeps two tensors of sums, one for the widest power of two and one
for the rest, and a step is two products. Shared memory would delay products that both read the left operand from it, so
that is loaded to registers once.
"""

from nojit.kernels.products.kernel_sm90 import multiply_steps
from nojit.kernels.products.kernel_sm90_tiles import OWNED, await_step, finish, widest
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, warpgroup_mma, warpgroup_mma_wait


@gluon.jit
def multiply_two_widths(OWN: gl.constexpr, memory, barriers, used, count, TILE: gl.constexpr, TRANS: gl.constexpr):
    """Return the sums of `count` steps for the rows of consumer `OWN`: for the first columns, and for the rest.

    `used` steps came before. No product still runs, and all stages are free.
    """
    full, empty = barriers
    WIDE: gl.constexpr = widest(TILE[1])
    REST: gl.constexpr = TILE[1] - WIDE
    wide_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, WIDE, 16])
    rest_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, REST, 16])
    wide = gl.zeros([OWNED, WIDE], gl.float32, wide_layout)
    rest = gl.zeros([OWNED, REST], gl.float32, rest_layout)
    for step in range(count):
        stage, a, b = await_step(OWN, memory, full, used + step, TILE, TRANS)
        left = a.load(gl.DotOperandLayout(0, wide_layout, 2))
        # the same registers: the layout of an operand names that of the result
        same = gl.convert_layout(left, gl.DotOperandLayout(0, rest_layout, 2))
        wide = warpgroup_mma(left, b.slice(0, WIDE, 1), wide, is_async=True)
        rest = warpgroup_mma(same, b.slice(WIDE, REST, 1), rest, is_async=True)
        wide, rest, left, same = warpgroup_mma_wait(0, deps=(wide, rest, left, same))
        mbarrier.arrive(empty.index(stage))
    return wide, rest


@gluon.jit
def multiply_widths(OWN: gl.constexpr, memory, barriers, used, count, TILE: gl.constexpr, TRANS: gl.constexpr):
    """Return the sums of `count` steps for the rows of consumer `OWN`: one tensor, or two if no power of two of columns.

    `used` steps came before. All stages are free after it.
    """
    WIDE: gl.constexpr = widest(TILE[1])
    if TILE[1] == WIDE:
        acc = gl.zeros([OWNED, WIDE], gl.float32, gl.NVMMADistributedLayout([3, 0], [4, 1], [16, WIDE, 16]))
        before = gl.to_tensor(-1)
        acc, before = multiply_steps(OWN, acc, before, memory, barriers, used, count, TILE, TRANS)
        sums = (finish(acc, barriers[1], before),)
    else:
        sums = multiply_two_widths(OWN, memory, barriers, used, count, TILE, TRANS)
    return sums
