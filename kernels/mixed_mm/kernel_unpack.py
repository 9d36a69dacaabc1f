"""Weights of 4 bits in registers: bytes to pairs of fp16 or bf16, at six instructions for four weights.

A nibble is put under an exponent that makes it the last bits of a number, 1024 + q of fp16 or 128 + q of bf16, and that
exponent's part is taken off again; both steps are exact, and each does two weights at once.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.constexpr_function
def _unpacking(is_half, count, groups):
    """Write the assembly that unpacks a word of `count` bytes.

    Its operands are twice as many weights, the word, and where there are `groups` pairs of scales, and pairs of zeros. Each
    byte gives q - 8 of its low and of its high nibble, or what its groups make of them: ``"scales"`` multiplies, ``"zeros"``
    adds 8 - z before.
    """
    kind, magic, offset, one, eight = (
        ("f16x2", "0x64006400", "0xe408e408", "0x3c003c00", "0x48004800")
        if is_half
        else ("bf16x2", "0x43004300", "0xc308c308", "0x3f803f80", "0x41004100")
    )
    word = 2 * count
    lines = [
        ".reg .b32 w, v, x, s, z, one, minus, offset, eight, nothing;",
        f"mov.b32 one, {one}; mov.b32 offset, {offset}; mov.b32 eight, {eight}; mov.b32 nothing, 0x80008000;",
        "xor.b32 minus, one, nothing;",
        f"mov.b32 w, ${word};" if count == 4 else f"cvt.u32.u16 w, ${word};",
        "shr.u32 v, w, 4;",
    ]
    for byte in range(count):
        half = "0x3232" if byte % 2 else "0x1010"
        scale = word + 1 + byte // 2
        zero = scale + count // 2
        lines.append(f"prmt.b32 x, w, v, 0x0{4 + byte}0{byte};")
        lines.append(f"lop3.b32 x, x, 0x000f000f, {magic}, 0xea;")
        lines.append(f"fma.rn.{kind} x, x, one, offset;")
        if groups == "zeros":
            lines.append(f"prmt.b32 z, ${zero}, ${zero}, {half};")
            lines.append(f"fma.rn.{kind} z, z, minus, eight;")
            lines.append(f"fma.rn.{kind} x, x, one, z;")
        if groups != "none":
            lines.append(f"prmt.b32 s, ${scale}, ${scale}, {half};")
            lines.append(f"fma.rn.{kind} x, x, s, nothing;")
        lines.append(f"mov.b32 {{${2 * byte}, ${2 * byte + 1}}}, x;")
    return "{\n" + "\n".join(lines) + "\n}"


@gluon.constexpr_function
def _constraints(count, groups):
    """Say which registers the assembly takes."""
    pairs = {"none": 0, "scales": count // 2, "zeros": count}[groups]
    return ",".join(["=h"] * (2 * count) + ["r" if count == 4 else "h"] + ["r"] * pairs)


@gluon.jit
def as_words(ptrs):
    """Point to int32 where a pointer of another type does."""
    return ptrs.to(gl.pointer_type(gl.int32), bitcast=True)


@gluon.jit
def halves_of_words(words, dtype: gl.constexpr):
    """Return both halves of each word, [.., 2 * words], as they lie."""
    low, high = gl.inline_asm_elementwise(
        "mov.b32 {$0, $1}, $2;", "=h,=h,r", (words,), (gl.int16, gl.int16), is_pure=True, pack=1
    )
    both = gl.join(low, high).reshape(words.shape[0], words.shape[1], words.shape[2] * 2)
    return both.to(dtype, bitcast=True)


@gluon.jit
def parted(pairs):
    """Return the first and the second of each pair [.., 2]."""
    return pairs.split()


@gluon.jit
def unpack_words(words, pairs, dtype: gl.constexpr, GROUPS: gl.constexpr):
    """Return the weights of int32 words [.., columns / 4], as [.., columns, 2]; the last index is a byte's nibble.

    `pairs` are int32 of two scales each, for the first two columns of a word and for the last, then such zeros.
    """
    ASM: gl.constexpr = _unpacking(dtype == gl.float16, 4, GROUPS)
    l0, h0, l1, h1, l2, h2, l3, h3 = gl.inline_asm_elementwise(
        ASM,
        _constraints(4, GROUPS),
        (words,) + pairs,  # noqa: RUF005 - kernels unpack no tuples
        (gl.int16, gl.int16, gl.int16, gl.int16, gl.int16, gl.int16, gl.int16, gl.int16),
        is_pure=True,
        pack=1,
    )
    even = gl.join(gl.join(l0, h0), gl.join(l2, h2))
    odd = gl.join(gl.join(l1, h1), gl.join(l3, h3))
    both = gl.join(even, odd).permute(0, 1, 2, 4, 5, 3)
    SHAPE: gl.constexpr = words.shape
    return both.reshape(SHAPE[0], SHAPE[1], SHAPE[2] * 4, 2).to(dtype, bitcast=True)


@gluon.jit
def unpack_shorts(shorts, pairs, dtype: gl.constexpr, GROUPS: gl.constexpr):
    """Return the weights of int16 words [rows, columns / 2], as [rows, columns, 2]; `pairs` as in `unpack_words`."""
    ASM: gl.constexpr = _unpacking(dtype == gl.float16, 2, GROUPS)
    l0, h0, l1, h1 = gl.inline_asm_elementwise(
        ASM,
        _constraints(2, GROUPS),
        (shorts,) + pairs,  # noqa: RUF005 - kernels unpack no tuples
        (gl.int16, gl.int16, gl.int16, gl.int16),
        is_pure=True,
        pack=1,
    )
    both = gl.join(gl.join(l0, h0), gl.join(l1, h1)).permute(0, 1, 3, 2)
    return both.reshape(shorts.shape[0], shorts.shape[1] * 2, 2).to(dtype, bitcast=True)
