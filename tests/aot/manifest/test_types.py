from __future__ import annotations

import pytest
from nojit.aot.manifest.types import ELEMENTS, axes_in, dims_in, fill, is_hintable, members_of, plain, types_of
from nojit.runtime.errors import ManifestError
from nojit.runtime.types.names import is_type


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("star", ["*", "*k"])
def test_a_pointer_to_every_element(star, element):
    assert types_of(f"{star}{element}", "here") == (f"{star}{'i1' if element == 'u1' else element}",)


@pytest.mark.parametrize("element", [element for element in ELEMENTS if element not in {"i1", "u1"}])
def test_a_descriptor_of_every_element_but_bools(element):
    assert types_of(f"tensordesc<{element}[16,16]>", "here") == (f"tensordesc<{element}[16,16]>",)


@pytest.mark.parametrize(
    ("spelling", "types"),
    [
        *((kind, (kind,)) for kind in ("i1", "i8", "i64", "u64", "fp16", "bf16", "fp32", "fp64", "none")),
        ("u1", ("i1",)),
        ("(*ku1?, u1)", ("(*ki1,i1)", "(none,i1)")),
        ("*fp16?", ("*fp16", "none")),
        ("(*fp16,i32)", ("(*fp16,i32)",)),
        ("( *fp16, i32 )", ("(*fp16,i32)",)),
        ("(i32,)", ("(i32)",)),
        ("=3", ("=3",)),
        ("= true", ("=true",)),
        ("=1.50", ("=1.5",)),
        ("=-0.0", ("=-0.0",)),
        ("=1e3", ("=1000.0",)),
        ('="silu"', ("='silu'",)),
        ("='a%2C%20b'", ("='a%2C%20b'",)),
        ("=dtype:bfloat16", ("=dtype:bf16",)),
        ("=dtype:i32", ("=dtype:int32",)),
        ("=none", ("none",)),
        ("(x: =function:kernel.py:relu, y: (=3, i32?))", ("(x:=function:kernel.py:relu,y:(=3,i32))", "(x:=function:kernel.py:relu,y:(=3,none))")),
        ("()", ("()",)),
        ("((i32,i64), *fp32)", ("((i32,i64),*fp32)",)),
        ("(*fp16?, i32?)", ("(*fp16,i32)", "(*fp16,none)", "(none,i32)", "(none,none)")),
        ("(i32, (fp32?))?", ("(i32,(fp32))", "(i32,(none))", "none")),
        ("(ptr: *fp16, n :i32)", ("(ptr:*fp16,n:i32)",)),
        ("(a: (b: i32?, c: fp32))", ("(a:(b:i32,c:fp32))", "(a:(b:none,c:fp32))")),
        ("tensordesc<fp16[128, 64]>", ("tensordesc<fp16[128,64]>",)),
        ("tensordesc<bf16[ 064 ]>", ("tensordesc<bf16[64]>",)),
        ("tensordesc<fp32[1,1,1,1,4]>?", ("tensordesc<fp32[1,1,1,1,4]>", "none")),
        ("(tensordesc<fp8e5[16,16]>, i32)", ("(tensordesc<fp8e5[16,16]>,i32)",)),
        ("tensordesc<fp16[64,64], NVMMASharedLayout()>", ("tensordesc<fp16[64,64],NVMMASharedLayout()>",)),
        (
            "tensordesc< fp16[64, 32] , NVMMASharedLayout( transposed = True, swizzle_byte_width = 64 ) >",
            ("tensordesc<fp16[64,32],NVMMASharedLayout(swizzle_byte_width=64,transposed=True)>",),
        ),
        (
            "(a: tensordesc<u8[64,64],NVMMASharedLayout(fp4_padded=True)>?, b: i32)",
            (
                "(a:tensordesc<u8[64,64],NVMMASharedLayout(fp4_padded=True)>,b:i32)",
                "(a:none,b:i32)",
            ),
        ),
    ],
)  # fmt: skip
def test_what_a_spelling_comes_to(spelling, types):
    assert types_of(spelling, "here") == types
    assert all(is_type(plain(kind)) for kind in types)


@pytest.mark.parametrize(
    ("spelling", "message"),
    [
        ("*f16", "expected a pointer to a Triton dtype, such as '*fp16', got '*f16'; did you mean 'fp16'? - at here"),
        ("*float16", "did you mean 'fp16'?"),
        ("*torch.bfloat16", "did you mean 'bf16'?"),
        ("*kfloat8_e5m2", "did you mean 'fp8e5'?"),
        ("float64", "did you mean 'fp64'?"),
        ("*float8_e8m0fnu", "Triton reads such values as bytes: write '*u8', and pass tensors viewed as torch.uint8"),
        ("*fp8e8m0", "write '*u8'"),
        ("*e2m1", "write '*u8'"),
        ("*fp4", "write '*u8'"),
        ("*float4_e2m1fn_x2", "write '*u8'"),
        ("tensordesc<float8_e8m0fnu[16,16]>", "write '*u8'"),
        ("*complex64", "write '*fp32', and pass torch.view_as_real(tensor)"),
        ("*fp8e4m3", "got '*fp8e4m3'; did you mean 'fp8e4nv'?"),
        ("**fp16", "got '**fp16'"),
        ("*", "got '*'"),
        ("*k", "got '*k'"),
        ("int32", "expected a type in Triton's spelling, such as '*fp16' or 'i32', got 'int32'; did you mean 'i32'? - at here"),
        ("constexpr", "expected constexprs in matrix, derived or configs, and the types of all other params here, got 'constexpr' - at here"),
        ("(*fp16,", "expected a type in Triton's spelling, such as '*fp16' or 'i32', got '(*fp16,' - at here"),
        ("fp8e4nv", "got 'fp8e4nv'"),
        ("", "got ''"),
        ("?", "got ''"),
        ("i32 ", "got 'i32 '"),
        ("i32\n", "got 'i32\\n'"),
        ("(i32,float)", "got 'float'"),
        ("=silu", "expected a constant, such as =3, =true, =1.5, ='silu', =dtype:fp16 or =function:kernel.py:relu, with other characters as %20, got '=silu' - at here"),
        ("=", "expected a constant"),
        ("=dtype:float8_e8m0fnu", "expected a constant"),
        ("=function:", "expected a constant"),
        ("='a b'", "with other characters as %20"),
        ("=99999999999999999999", "expected a constant"),
        ("(i32)(i32)", "got 'i32)(i32'"),
        ("(a: i32, fp32)", "expected names for all members of a tuple or for none, got '(a: i32, fp32)' - at here"),
        ("(a: i32, a: fp32)", "expected names of members that differ"),
        ("(_a: i32)", "do not start with '_', got '(_a: i32)'"),
        ("(in: i32)", "are not Python keywords"),
        ("(" * 9 + "i32" + ")" * 9, "expected tuples at most 8 deep"),
        ("tensordesc<f16[128]>", "expected a tensor descriptor of a Triton dtype except bool, such as 'tensordesc<fp16[64,64]>', got 'tensordesc<f16[128]>'; did you mean 'fp16'? - at here"),
        ("tensordesc<i1[128]>", "got 'tensordesc<i1[128]>'"),
        ("tensordesc<fp16[]>", "got 'tensordesc<fp16[]>'"),
        ("tensordesc<fp16[-1]>", "got 'tensordesc<fp16[-1]>'"),
        ("tensordesc<fp16[64,64],SwizzledSharedLayout()>", "got 'tensordesc<fp16[64,64],SwizzledSharedLayout()>'"),
        ("tensordesc<fp16[64,64],NVMMASharedLayout(rank=2)>", "expected a layout to set swizzle_byte_width, transposed, fp4_padded, each once at most, got "),
        ("tensordesc<fp16[64,64],NVMMASharedLayout(swizzle=64)>", "each once at most, got "),
        ("tensordesc<fp16[64,64],NVMMASharedLayout(transpose=True)>", "; did you mean 'transposed'?"),
        ("tensordesc<fp16[64,64],NVMMASharedLayout(transposed=True,transposed=True)>", "each once at most, got "),
        ("tensordesc<fp16[64,64],NVMMASharedLayout(swizzle_byte_width=16)>", "expected swizzle_byte_width to be one of 0, 32, 64, 128, got "),
        ("tensordesc<fp16[64,64],NVMMASharedLayout(transposed=1)>", "expected transposed to be one of False, True, got "),
        ("tensordesc<fp16[64,32],NVMMASharedLayout(swizzle_byte_width=128)>", "expected a block of at least 128 bytes along its last dimension, the width of the swizzle, got "),
        ("tensordesc<fp16[64,64],NVMMASharedLayout(fp4_padded=True)>", "expected elements of one byte and a swizzle of 128 bytes for padded 4-bit values, got "),
        ("tensordesc<u8[64,64],NVMMASharedLayout(fp4_padded=True,swizzle_byte_width=64)>", "a swizzle of 128 bytes for padded 4-bit values, got "),
        ("tensordesc_im2col<fp16[64,64],input_rank=4>", "expected a tiled tensor descriptor: im2col is not supported, got 'tensordesc_im2col<fp16[64,64],input_rank=4>' - at here"),
        ("tensordesc<fp16[1,1,1,1,1,64]>", "expected a block of 1 to 5 dimensions, got "),
        ("tensordesc<fp16[64,48]>", "expected a block whose dimensions are powers of two, got "),
        ("tensordesc<fp16[0,64]>", "expected a block whose dimensions are powers of two, got "),
        ("tensordesc<fp16[2048,1024]>", "expected a block of at most 1048576 elements, got "),
        ("tensordesc<fp16[64,4]>", "expected a block of at least 16 bytes along its last dimension, got "),
        ("tensordesc<fp8e5b16[64,8]>", "expected a block of at least 16 bytes along its last dimension, got "),
    ],
)  # fmt: skip
def test_types_that_it_has_not(spelling, message):
    with pytest.raises(ManifestError) as caught:
        types_of(spelling, "here")
    assert message in str(caught.value)


def test_axes():
    assert axes_in("*{dtype}") == ("dtype",)
    assert axes_in("({a},*{b})") == ("a", "b")
    assert axes_in("*fp16") == ()
    assert fill("({a},*{b}?)", {"a": "i32", "b": "fp16"}) == "(i32,*fp16?)"


def test_axes_of_a_block_are_told_from_those_of_types():
    spelling = "(tensordesc<{dtype}[{M}, 64, {K}]>, {index})"
    assert axes_in(spelling) == ("dtype", "index")
    assert dims_in(spelling) == ("M", "K")
    filled = fill(spelling, {"dtype": "fp16", "M": "8", "K": "16", "index": "i32"})
    assert types_of(filled, "here") == ("(tensordesc<fp16[8,64,16]>,i32)",)


def test_names_of_members_come_off():
    assert plain("(a:(b:*fp16,c:i32),d:tensordesc<fp16[64]>)") == "((*fp16,i32),tensordesc<fp16[64]>)"
    assert plain("(a:tensordesc<fp16[64],NVMMASharedLayout(transposed=True)>,b:i32)") == "(tensordesc<fp16[64]>,i32)"
    assert members_of("(a:(b:i32),c:fp32)") == (["a", "c"], ["(b:i32)", "fp32"])
    assert members_of("(i32,(b:i32))") == ([], ["i32", "(b:i32)"])


@pytest.mark.parametrize(
    ("spelling", "hint", "hintable"),
    [
        ("*fp16", 16, True),
        ("*fp16", 1, False),
        ("*kfp16", 16, True),
        ("(i32)", 16, False),
        ("tensordesc<fp16[64]>", 16, False),
        ("i32", 16, True),
        ("i32", 1, True),
        ("u64", 1, True),
        ("i1", 1, False),
        ("fp32", 16, False),
        ("fp32", 1, False),
        ("none", 16, False),
    ],
)
def test_what_triton_specializes(spelling, hint, hintable):
    assert is_hintable(spelling, hint) is hintable


def test_names_of_members_come_off_and_constants_stay():
    (kind,) = types_of("(x: =function:kernel.py:relu, y: (a: =dtype:fp16, b: i32))", "here")
    assert plain(kind) == "(=function:kernel.py:relu,(=dtype:fp16,i32))"
