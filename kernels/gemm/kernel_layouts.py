"""What kernels write layouts of registers with that load what tensor cores want as it lies in memory."""

from triton.experimental import gluon


@gluon.constexpr_function
def bits(count, length, dim, rank):
    """List the bases of an index that counts, in steps of `length` of one dimension, to `count`."""
    return [[length << bit if at == dim else 0 for at in range(rank)] for bit in range(count.bit_length() - 1)]
