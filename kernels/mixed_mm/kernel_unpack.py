"""4-bit weights in registers: conversion of bytes to pairs of fp16 or bf16.

A nibble is placed under an exponent so that it becomes the last bits of a number, 1024 + q in fp16 or 128 + q in bf16; then that
offset is subtracted. Both steps are exact and handle two weights at once. A high nibble may stay in place: fp16 then has
1024 + 16 * q. In bf16, whose exponent it overlaps, it becomes a small denormal number.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.constexpr_function
def _unpacking(is_half, together, groups):
    """Return the assembly that unpacks a word: two bytes of each of two rows, or `together`, two words: four of each.

    Its operands are the weights, the bytes, and, with `groups`, pairs of scales and pairs of zeros; without `together`,
    those of either row, which are the same. A byte gives a pair of its low and its high nibble; two bytes of two rows
    `together` give a pair of low nibbles and one of high ones. Values are q - 8, or dequantized: ``"scales"`` multiplies,
    ``"zeros"`` first adds 8 - z. For two words of bf16 they are a quarter of that: bf16's largest power of two, 2^127,
    turns a high nibble, read as a number, into q / 4.
    """
    # for low nibbles, then for high ones: the exponent, the factor, and the offset
    if is_half:
        kind, one, minus, eight = "f16x2", "0x3c003c00", "0xbc00bc00", "0x48004800"
        nibbles = [("0x64006400", one, "0xe408e408"), ("0x64006400", "0x2c002c00", "0xd480d480")]
    elif together:
        kind, one, minus, eight = "bf16x2", "0x3f803f80", "0xbe80be80", "0x40004000"
        nibbles = [("0x43004300", "0x3e803e80", "0xc208c208"), ("0", "0x7f007f00", "0xc000c000")]
    else:
        kind, one, minus, eight = "bf16x2", "0x3f803f80", "0xbf80bf80", "0x41004100"
        nibbles = [("0x43004300", one, "0xc308c308")]
    word = 8 if together else 4
    lines = [
        ".reg .b32 w, v, b, x, s, z, factor, offset, one, minus, eight, nothing;",
        f"mov.b32 one, {one}; mov.b32 minus, {minus}; mov.b32 eight, {eight}; mov.b32 nothing, 0x80008000;",
        f"mov.b32 w, ${word}; mov.b32 v, ${word + 1};" if together else f"mov.b32 w, ${word}; shr.u32 v, w, 4;",
    ]
    for byte in range(4):
        half = "0x3232" if byte % 2 else "0x1010"
        scale = word + 2 + byte // 2 if together else word + 1
        if groups == "zeros":
            lines.append(f"prmt.b32 z, ${scale + 2}, ${scale + 2}, {half}; fma.rn.{kind} z, z, minus, eight;")
        if groups != "none":
            lines.append(f"prmt.b32 s, ${scale}, ${scale}, {half};")
        lines.append(f"prmt.b32 b, w, v, 0x0{4 + byte}0{byte};")
        for high in range(1 + together):
            exponent, factor, offset = nibbles[high]
            lines.append(f"mov.b32 factor, {factor}; mov.b32 offset, {offset};")
            lines.append(f"lop3.b32 x, b, {'0x00f000f0' if high else '0x000f000f'}, {exponent}, 0xea;")
            lines.append(f"fma.rn.{kind} x, x, factor, offset;")
            if groups == "zeros":
                lines.append(f"fma.rn.{kind} x, x, one, z;")
            if groups != "none":
                lines.append(f"fma.rn.{kind} x, x, s, nothing;")
            # a word's weights are ordered by column, then by row
            place = 2 * byte + high if together else 2 * (byte % 2) + byte // 2
            lines.append(f"mov.b32 ${place}, x;")
    return "{\n" + "\n".join(lines) + "\n}"


@gluon.constexpr_function
def _constraints(together, groups):
    """Return the register constraints of the assembly that unpacks weights."""
    pairs = {"none": 0, "scales": 2, "zeros": 4}[groups]
    return ",".join(["=r"] * (8 if together else 4) + ["r"] * (1 + together + pairs))


@gluon.jit
def as_words(ptrs):
    """Return `ptrs` as pointers to int32 at the same addresses."""
    return ptrs.to(gl.pointer_type(gl.int32), bitcast=True)


@gluon.jit
def halves_of_words(words, dtype: gl.constexpr):
    """Return both 16-bit halves of each word as `dtype`, [.., 2 * words], in memory order."""
    low, high = gl.inline_asm_elementwise(
        "mov.b32 {$0, $1}, $2;", "=h,=h,r", (words,), (gl.int16, gl.int16), is_pure=True, pack=1
    )
    both = gl.join(low, high).reshape(words.shape[0], words.shape[1], words.shape[2] * 2)
    return both.to(dtype, bitcast=True)


@gluon.jit
def parted(pairs):
    """Return the first and the second elements of pairs [.., 2]."""
    return pairs.split()


@gluon.jit
def unpack_words(first, second, pairs, dtype: gl.constexpr, GROUPS: gl.constexpr):
    """Return the weights of int32 words [.., columns / 4] of two rows as pairs of both, [.., columns / 4, 2, 2, 2].

    The last indices are a byte's nibble, and the two bits of its position in the word. For bf16 they are a quarter of the
    weights. `pairs` are int32 of two scales each, for the first two columns of a word and for the last two, then zeros alike.
    """
    ASM: gl.constexpr = _unpacking(dtype == gl.float16, True, GROUPS)
    l0, h0, l1, h1, l2, h2, l3, h3 = gl.inline_asm_elementwise(
        ASM,
        _constraints(True, GROUPS),
        (first, second) + pairs,  # noqa: RUF005 - kernels unpack no tuples
        (gl.int32, gl.int32, gl.int32, gl.int32, gl.int32, gl.int32, gl.int32, gl.int32),
        is_pure=True,
        pack=1,
    )
    even = gl.join(gl.join(l0, h0), gl.join(l2, h2))
    odd = gl.join(gl.join(l1, h1), gl.join(l3, h3))
    return gl.join(even, odd)


@gluon.jit
def halves_together(words):
    """Return for each two words [.., 2] a word of their first halves, and a word of their second halves."""
    first, second = words.split()
    low, high = gl.inline_asm_elementwise(
        "prmt.b32 $0, $2, $3, 0x5410; prmt.b32 $1, $2, $3, 0x7632;",
        "=&r,=r,r,r",
        (first, second),
        (gl.int32, gl.int32),
        is_pure=True,
        pack=1,
    )
    return gl.join(low, high)


@gluon.jit
def unpack_shorts(shorts, pairs, dtype: gl.constexpr, GROUPS: gl.constexpr):
    """Return the weights of int16 words [rows, columns / 2] as [rows, columns, 2]; `pairs` hold two scales, then two zeros.

    A thread's registers hold two words each, of two rows that share their scales and zeros.
    """
    ASM: gl.constexpr = _unpacking(dtype == gl.float16, False, GROUPS)
    first, second = gl.inline_asm_elementwise(
        ASM,
        _constraints(False, GROUPS),
        (shorts,) + pairs,  # noqa: RUF005 - kernels unpack no tuples
        (gl.int32, gl.int32),
        is_pure=True,
        pack=2,
    )
    words = gl.join(first, second).reshape(1, shorts.shape[0], shorts.shape[1] * 2)
    return halves_of_words(words, dtype).reshape(shorts.shape[0], shorts.shape[1] * 2, 2)
