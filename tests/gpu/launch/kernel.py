"""Kernels that store what they were given, one per way in which a launch can differ. `launch.toml` builds them."""

# ruff: noqa: N803, PLR0917 - constexprs are upper case, and some kernels are about many params

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma
from triton.language.extra import cuda

# -- scalars and pointers --------------------------------------------------------------------------------------------


@triton.jit
def scalars_kernel(
    ints_ptr,
    floats_ptr,
    a: tl.int8,
    b: tl.int16,
    c: tl.int32,
    d: tl.int64,
    e: tl.uint8,
    f: tl.uint16,
    g: tl.uint32,
    h: tl.uint64,
    i: tl.int1,
    j: tl.float16,
    k: tl.bfloat16,
    l: tl.float32,  # noqa: E741
    m: tl.float64,
):
    """Store each int as 64 bits, each float as fp64; i is a bool."""
    tl.store(ints_ptr, a.to(tl.int64))
    tl.store(ints_ptr + 1, b.to(tl.int64))
    tl.store(ints_ptr + 2, c.to(tl.int64))
    tl.store(ints_ptr + 3, d)
    tl.store(ints_ptr + 4, e.to(tl.int64))
    tl.store(ints_ptr + 5, f.to(tl.int64))
    tl.store(ints_ptr + 6, g.to(tl.int64))
    tl.store(ints_ptr + 7, h.to(tl.int64, bitcast=True))
    tl.store(ints_ptr + 8, i.to(tl.int64))
    tl.store(floats_ptr, j.to(tl.float64))
    tl.store(floats_ptr + 1, k.to(tl.float64))
    tl.store(floats_ptr + 2, l.to(tl.float64))
    tl.store(floats_ptr + 3, m)


@triton.jit
def copy_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Copy n elements of any dtype. Grid: cdiv(n, BLOCK)."""
    lanes = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + lanes, tl.load(x_ptr + lanes, mask=lanes < n), mask=lanes < n)


@triton.jit
def constant_kernel(x_ptr: tl.const, out_ptr):
    """Copy one element through a pointer to constants."""
    tl.store(out_ptr, tl.load(x_ptr))


@triton.jit
def optional_kernel(x_ptr, y_ptr, out_ptr):
    """Store x + y, or x where there is no y."""
    value = tl.load(x_ptr)
    if y_ptr is not None:
        value += tl.load(y_ptr)
    tl.store(out_ptr, value)


@triton.jit(do_not_specialize=["n"], do_not_specialize_on_alignment=["m"])
def unspecialized_kernel(out_ptr, n, m):
    """Store two ints that Triton may not compile in, whatever they are."""
    tl.store(out_ptr, n)
    tl.store(out_ptr + 1, m)


@triton.jit
def grid_kernel(out_ptr, columns, layers):
    """Store each program's place. Grid: any, columns, layers; out is [x, columns, layers, 3]."""
    x, y, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    out_ptr += ((x * columns + y) * layers + z) * 3
    tl.store(out_ptr, x)
    tl.store(out_ptr + 1, y)
    tl.store(out_ptr + 2, z)


# -- numbers of arguments --------------------------------------------------------------------------------------------


@triton.jit
def arguments_1_kernel(out_ptr):
    """Store 42."""
    tl.store(out_ptr, 42.0)


@triton.jit
def arguments_4_kernel(out_ptr, x_ptr, n, scale):
    """Store x * scale + n."""
    tl.store(out_ptr, tl.load(x_ptr) * scale + n)


@triton.jit
def arguments_12_kernel(out_ptr, p0, p1, p2, p3, p4, i0, i1, i2, i3, f0, f1):
    """Store what five pointers point to, four ints and two floats."""
    tl.store(out_ptr, tl.load(p0))
    tl.store(out_ptr + 1, tl.load(p1))
    tl.store(out_ptr + 2, tl.load(p2))
    tl.store(out_ptr + 3, tl.load(p3))
    tl.store(out_ptr + 4, tl.load(p4))
    tl.store(out_ptr + 5, i0 + 0.0)
    tl.store(out_ptr + 6, i1 + 0.0)
    tl.store(out_ptr + 7, i2 + 0.0)
    tl.store(out_ptr + 8, i3 + 0.0)
    tl.store(out_ptr + 9, f0)
    tl.store(out_ptr + 10, f1)


@triton.jit
def arguments_30_kernel(
    out_ptr, p0, p1, p2, p3, p4, p5, p6, p7, p8,
    i0, i1, i2, i3, i4, i5, i6, i7, i8, i9, i10, i11, i12, i13, i14,
    f0, f1, f2, f3, f4,
):  # fmt: skip
    """Store what nine pointers point to, fifteen ints and five floats."""
    _nine(out_ptr, p0, p1, p2, p3, p4, p5, p6, p7, p8)
    _five(out_ptr + 9, i0, i1, i2, i3, i4)
    _five(out_ptr + 14, i5, i6, i7, i8, i9)
    _five(out_ptr + 19, i10, i11, i12, i13, i14)
    _five(out_ptr + 24, f0, f1, f2, f3, f4)


@triton.jit
def _nine(out_ptr, p0, p1, p2, p3, p4, p5, p6, p7, p8):
    _five(out_ptr, tl.load(p0), tl.load(p1), tl.load(p2), tl.load(p3), tl.load(p4))
    tl.store(out_ptr + 5, tl.load(p5))
    tl.store(out_ptr + 6, tl.load(p6))
    tl.store(out_ptr + 7, tl.load(p7))
    tl.store(out_ptr + 8, tl.load(p8))


@triton.jit
def _five(out_ptr, a, b, c, d, e):
    tl.store(out_ptr, a + 0.0)
    tl.store(out_ptr + 1, b + 0.0)
    tl.store(out_ptr + 2, c + 0.0)
    tl.store(out_ptr + 3, d + 0.0)
    tl.store(out_ptr + 4, e + 0.0)


# -- constexprs ------------------------------------------------------------------------------------------------------


@triton.jit
def double(x):
    """A function that is handed to a kernel."""
    return x * 2


@triton.jit
def negate(x):
    """Another."""
    return -x


@triton.jit
def constexprs_kernel(
    out_ptr,
    INT: tl.constexpr,
    FLOAT: tl.constexpr,
    BOOL: tl.constexpr,
    WORD: tl.constexpr,
    MAYBE: tl.constexpr,
    DTYPE: tl.constexpr,
    FUNCTION: tl.constexpr,
    PAIR: tl.constexpr,
    DEFAULT: tl.constexpr = 9,
):
    """Store a number for each kind of constexpr."""
    tl.store(out_ptr, INT + 0.0)
    tl.store(out_ptr + 1, FLOAT)
    if BOOL:
        tl.store(out_ptr + 2, 1.0)
    else:
        tl.store(out_ptr + 2, 0.0)
    if WORD == "gelu":
        tl.store(out_ptr + 3, 1.0)
    else:
        tl.store(out_ptr + 3, 0.0)
    if MAYBE is None:
        tl.store(out_ptr + 4, -1.0)
    else:
        tl.store(out_ptr + 4, MAYBE + 0.0)
    # what 1.3 rounds to
    tl.store(out_ptr + 5, tl.full((), 1.3, DTYPE).to(tl.float32))
    tl.store(out_ptr + 6, FUNCTION(tl.load(out_ptr + 6)))
    tl.store(out_ptr + 7, PAIR[0] * 10.0 + PAIR[1])
    tl.store(out_ptr + 8, DEFAULT + 0.0)


# -- tuples ----------------------------------------------------------------------------------------------------------


@triton.jit
def tuple_kernel(x, out_ptr):
    """x is (pointer, (int, float), pointer or None, bool): store what each holds."""
    tl.store(out_ptr, tl.load(x[0]))
    tl.store(out_ptr + 1, x[1][0] + 0.0)
    tl.store(out_ptr + 2, x[1][1])
    if x[2] is None:
        tl.store(out_ptr + 3, -1.0)
    else:
        tl.store(out_ptr + 3, tl.load(x[2]))
    tl.store(out_ptr + 4, x[3].to(tl.float32))


@triton.jit
def named_tuple_kernel(tile, out_ptr):
    """Tile is (ptr, shape: (rows, cols), scale), by name: store what each holds."""
    tl.store(out_ptr, tl.load(tile.ptr))
    tl.store(out_ptr + 1, tile.shape.rows + 0.0)
    tl.store(out_ptr + 2, tile.shape.cols + 0.0)
    tl.store(out_ptr + 3, tile.scale)


@triton.jit
def copy_in_a_tuple_kernel(work, BLOCK: tl.constexpr):
    """Work is (from, (to, n)): copy n elements, in wide words where all are divisible by 16. Grid: cdiv(n, BLOCK)."""
    lanes = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = lanes < work[1][1]
    tl.store(work[1][0] + lanes, tl.load(work[0] + lanes, mask=mask), mask=mask)


@triton.jit
def pointers_kernel(xs, out_ptr, COUNT: tl.constexpr):
    """Store what each of a tuple of pointers points to."""
    for place in tl.static_range(COUNT):
        tl.store(out_ptr + place, tl.load(xs[place]))


# -- tensor descriptors ----------------------------------------------------------------------------------------------


@triton.jit
def copy_1d_kernel(a, b):
    """Grid: blocks."""
    place = tl.program_id(0) * a.block_shape[0]
    b.store([place], a.load([place]))


@triton.jit
def copy_2d_kernel(a, b):
    """Grid: blocks along each dimension."""
    row, col = tl.program_id(0) * a.block_shape[0], tl.program_id(1) * a.block_shape[1]
    b.store([row, col], a.load([row, col]))


@triton.jit
def copy_3d_kernel(a, b):
    """Grid: blocks along each dimension."""
    x, y = tl.program_id(0) * a.block_shape[0], tl.program_id(1) * a.block_shape[1]
    z = tl.program_id(2) * a.block_shape[2]
    b.store([x, y, z], a.load([x, y, z]))


@triton.jit
def descriptor_facts_kernel(a, out_ptr):
    """Store shape and strides as the kernel sees them."""
    tl.store(out_ptr, a.shape[0].to(tl.int64))
    tl.store(out_ptr + 1, a.shape[1].to(tl.int64))
    tl.store(out_ptr + 2, a.strides[0])
    tl.store(out_ptr + 3, a.strides[1])


@triton.jit
def descriptors_in_a_tuple_kernel(pair, extra):
    """Copy from the first descriptor to the second, or leave it where extra's is None. Grid: blocks."""
    row = tl.program_id(0) * pair[0].block_shape[0]
    value = pair[0].load([row, 0])
    if extra[0] is not None:
        value += extra[0].load([row, 0])
    pair[1].store([row, 0], value)


@triton.jit
def descriptor_matmul_kernel(a, b, c, inner, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """c = a @ b.T in fp16. Grid: cdiv(m, BLOCK_M), cdiv(n, BLOCK_N)."""
    row, col = tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for place in range(0, inner, BLOCK_K):
        total = tl.dot(a.load([row, place]), b.load([col, place]).T, total)
    c.store([row, col], total.to(tl.float16))


@triton.jit
def device_descriptors_kernel(x_ptr, out_ptr, rows, cols, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Copy through descriptors made on the device, in scratch memory where there are tensor maps. Grid: blocks."""
    x = tl.make_tensor_descriptor(x_ptr, [rows, cols], [cols, 1], [BLOCK_M, BLOCK_N])
    out = tl.make_tensor_descriptor(out_ptr, [rows, cols], [cols, 1], [BLOCK_M, BLOCK_N])
    row, col = tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N
    out.store([row, col], x.load([row, col]))


# -- launch attributes -----------------------------------------------------------------------------------------------


@triton.jit
def cluster_kernel(x_ptr, out_ptr, sums_ptr, BLOCK: tl.constexpr):
    """Double a block that a cluster shares, and store its first lane's program. Grid: blocks."""
    lanes = tl.arange(0, BLOCK)
    start = tl.program_id(0) * BLOCK
    x = tl.load(x_ptr + start + lanes)
    tl.store(out_ptr + start + lanes, x * 2)
    tl.store(sums_ptr + tl.program_id(0), tl.program_id(0) + tl.num_programs(0) * 1000)


@triton.jit
def cooperative_kernel(counter_ptr, out_ptr):
    """Store how many programs had come when the last one had: all must run at once. Grid: any that fits."""
    tl.atomic_add(counter_ptr, 1)
    while tl.atomic_add(counter_ptr, 0) < tl.num_programs(0):
        pass
    tl.store(out_ptr + tl.program_id(0), tl.atomic_add(counter_ptr, 0))


@triton.jit
def pdl_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Store x + 1, once what was launched before is done, and let what comes after start. Grid: cdiv(n, BLOCK)."""
    lanes = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    cuda.gdc_wait()
    x = tl.load(x_ptr + lanes, mask=lanes < n)
    cuda.gdc_launch_dependents()
    tl.store(out_ptr + lanes, x + 1, mask=lanes < n)


@triton.jit
def row_softmax_kernel(
    out_ptr, x_ptr, x_stride, out_stride, rows, cols, BLOCK: tl.constexpr, num_stages: tl.constexpr
):  # fmt: skip
    """Take the softmax of each row of x [rows, cols], at most BLOCK columns. The constexpr is an option, too. Grid: any."""
    lanes = tl.arange(0, BLOCK)
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=num_stages):
        x = tl.load(x_ptr + row * x_stride + lanes, mask=lanes < cols, other=-float("inf"))
        weights = tl.exp(x - tl.max(x, axis=0))
        tl.store(out_ptr + row * out_stride + lanes, weights / tl.sum(weights, axis=0), mask=lanes < cols)


@triton.jit
def matmul_kernel(a_ptr, b_ptr, c_ptr, inner, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr):
    """One block of c = a @ b in fp16, a [BLOCK, inner], b [inner, BLOCK]; shared memory grows with num_stages."""
    rows, inners = tl.arange(0, BLOCK), tl.arange(0, BLOCK_K)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for place in range(0, inner, BLOCK_K):
        a = tl.load(a_ptr + rows[:, None] * inner + place + inners[None, :])
        b = tl.load(b_ptr + (place + inners[:, None]) * BLOCK + rows[None, :])
        total = tl.dot(a, b, total)
    tl.store(c_ptr + rows[:, None] * BLOCK + rows[None, :], total.to(tl.float16))


# -- Gluon -----------------------------------------------------------------------------------------------------------

# Triton renamed them after 3.7
_copy_in = tma.async_load if hasattr(tma, "async_load") else tma.async_copy_global_to_shared
_copy_out = tma.async_store if hasattr(tma, "async_store") else tma.async_copy_shared_to_global


@gluon.jit
def gluon_copy_kernel(a, b):
    """Copy a block through shared memory, which tensor maps fill and empty. Grid: blocks along each dimension."""
    row, col = gl.program_id(0) * a.block_shape[0], gl.program_id(1) * a.block_shape[1]
    memory = gl.allocate_shared_memory(a.dtype, a.block_shape, a.layout)
    full = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(full, count=1)
    mbarrier.expect(full, a.block_type.nbytes)
    _copy_in(a, [row, col], full, memory)
    mbarrier.wait(full, 0)
    _copy_out(b, [row, col], memory)
    tma.store_wait(0)
