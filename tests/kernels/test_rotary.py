"""Rotary position embedding through Triton's interpreter."""

from __future__ import annotations

import random

import pytest
import torch
from nojit.kernels import library
from nojit.kernels.rotary import op, reference, rotary, rotary_qk, rotary_to_cache
from nojit.runtime.errors import ArgumentError
from torch import Tensor

from tests.kernels.accuracy import assert_accurate

FLOATS = (torch.float16, torch.bfloat16, torch.float32)
# head_dim and rotary_dim: each config's, whole and partial, and sizes that 8 does not divide
WIDTHS = (
    (64, 64),
    (128, 128),
    (256, 256),
    (512, 512),
    (80, 80),
    (128, 32),
    (96, 48),
    (20, 6),
    (2, 2),
    (201, 130),
    (320, 64),
)


def tables(rotary_dim: int, dtype: torch.dtype = torch.float32, most: int = 64) -> tuple[Tensor, Tensor]:
    """Make cos and sin of `most` positions."""
    steps = 100.0 ** -(torch.arange(0, rotary_dim, 2) / rotary_dim)
    angles = torch.arange(most)[:, None] * steps
    return angles.cos().to(dtype), angles.sin().to(dtype)


def wide(value):
    return value.double() if isinstance(value, Tensor) and value.is_floating_point() else value


def check(function, right, *operands, factor: float = 2.0, **words) -> tuple[Tensor, ...]:
    """Hold an operator to the exact result."""
    found = function(*operands, **words)
    exact = right(*map(wide, operands), **{name: wide(value) for name, value in words.items()})
    own = right(*operands, **words)
    found, exact, own = (value if isinstance(value, tuple) else (value,) for value in (found, exact, own))
    for got, expected, torchs in zip(found, exact, own, strict=True):
        assert_accurate(got, expected, torchs, factor)
    return found


@pytest.mark.usefixtures("interpreted")
class TestRotation:
    """Values without norms and caches."""

    @pytest.mark.parametrize("dtype", FLOATS, ids=str)
    @pytest.mark.parametrize(("head_dim", "rotary_dim"), WIDTHS)
    def test_every_width(self, head_dim, rotary_dim, dtype):
        x = torch.randn(7, 3, head_dim).to(dtype)
        positions = torch.randint(64, (7,))
        for table in {dtype, torch.float32}:
            for interleaved in (False, True):
                check(rotary, reference.rotary, x, *tables(rotary_dim, table), positions, interleaved=interleaved)

    @pytest.mark.parametrize("heads", [(1, 1), (3, 1), (32, 8), (17, 5), (40, 2)])
    @pytest.mark.parametrize("tokens", [1, 2, 9, 33])
    def test_any_number_of_heads_and_tokens(self, tokens, heads):
        query, key = (torch.randn(tokens, count, 64, dtype=torch.float16) for count in heads)
        check(rotary_qk, reference.rotary_qk, query, key, *tables(64, torch.float16), torch.randint(64, (tokens,)))

    @pytest.mark.parametrize("dim", [64, 80, 256])
    @pytest.mark.parametrize("ints", [None, torch.int32, torch.int64])
    def test_evenly_spaced_tokens_and_others_give_equal_bits(self, interpreter, dim, ints):
        """The former take the flat kernel."""
        packed = torch.randn(2, 4, 9, dim).bfloat16()[:, :3]
        positions = None if ints is None else torch.randint(64, (2, 3)).to(ints)
        words = (*tables(dim, torch.bfloat16), positions)
        found = {}
        for kernel, whole in (("rotary_flat", packed.contiguous()), ("rotary", packed)):
            query, key, _ = whole.split((5, 2, 2), 2)
            names: list[str] = []
            with library.override(lambda name, names=names: names.append(name) or interpreter(name)):
                turned = rotary_qk(query, key, *words)
                rotary_qk(query, key, *words, inplace=True)
            found[kernel] = (*turned, query, key)
            assert set(names) == {kernel}
        assert all(map(torch.equal, *found.values()))

    @pytest.mark.parametrize("seed", range(12))
    def test_any_shape_strides_and_partial_width(self, seed):
        rng = random.Random(seed)
        dim = rng.choice((16, 24, 64, 100))
        part = rng.choice((dim, dim // 2 // 2 * 2, 2))
        whole = torch.randn(3, 6, 5, 2 * dim + 1)
        views = (
            whole[..., :dim],
            whole[:, 1:, :4, 1 : dim + 1],
            whole[::2, :, :, :dim],
            whole[..., : 2 * dim : 2],
            whole.transpose(1, 2)[..., :dim],
            whole.transpose(0, 1)[..., :dim],
            whole[:1].expand(2, -1, -1, -1)[..., :dim],
            whole[0, :, :, :dim],
            whole[:, :, :1, :dim],
            whole.unflatten(1, (2, 3))[..., :dim],
            whole.unflatten(1, (2, 3)).transpose(0, 1)[..., :dim],
        )
        query = rng.choice(views)
        key = rng.choice([view for view in views if view.shape[:-2] == query.shape[:-2]])
        shape = rng.choice((query.shape[:-2], query.shape[-3:-2]))
        positions = rng.choice((None, torch.randint(64, shape), torch.randint(64, (*shape, 2))[..., 0].int()))
        cos, sin = tables(part)
        if rng.random() < 0.5:
            both = torch.cat((cos, sin), -1)
            cos, sin = both.chunk(2, -1)
        before = whole.clone()
        check(rotary_qk, reference.rotary_qk, query, key, cos, sin, positions, interleaved=rng.random() < 0.5)
        assert torch.equal(whole, before)

    def test_columns_past_the_rotated_ones_are_copied_bit_by_bit(self):
        x = torch.full((2, 1, 48), float("inf"))
        x[..., :16] = 1
        assert torch.equal(rotary(x, *tables(16))[..., 16:], x[..., 16:])

    @pytest.mark.parametrize("interleaved", [False, True])
    @pytest.mark.parametrize("width", [64, 40])
    def test_in_place(self, width, interleaved):
        packed = torch.randn(5, 6, 64)
        query, key, value = packed.split((3, 2, 1), 1)
        given = query.clone(), key.clone(), value.clone()
        cos, sin = tables(width)
        right = reference.rotary_qk(*given[:2], cos, sin, interleaved=interleaved)
        found = rotary_qk(query, key, cos, sin, interleaved=interleaved, inplace=True)
        assert found[0] is query
        assert found[1] is key
        for got, expected in zip((query, key, value), (*right, given[2]), strict=True):
            torch.testing.assert_close(got, expected)

    @pytest.mark.parametrize("repeats", [1, 3])
    def test_out_may_be_the_operand(self, repeats):
        for _ in range(repeats):
            x, (cos, sin) = torch.randn(5, 3, 32), tables(24)
            right, apart = reference.rotary(x, cos, sin), torch.full((5, 2, 3, 32), float("nan"))[:, 0]
            assert rotary(x, cos, sin, out=apart) is apart
            assert rotary(x, cos, sin, out=x) is x
            torch.testing.assert_close(x, right)
            torch.testing.assert_close(apart, right)

    def test_a_call_in_place_is_not_replayed_for_another_output(self):
        x, (cos, sin) = torch.randn(5, 3, 32), tables(24)
        for _ in range(3):
            right, apart = reference.rotary(x, cos, sin), torch.full_like(x, float("nan"))
            view = x.clone()
            rotary(view, cos, sin, out=view.view_as(view))
            rotary(x, cos, sin, out=apart)
            torch.testing.assert_close(apart, right)
            rotary(x, cos, sin, out=x)
            torch.testing.assert_close(x, right)
            torch.testing.assert_close(view, right)

    @pytest.mark.parametrize("shape", [(0, 2, 8), (3, 0, 8), (2, 0, 4, 8), (0, 5, 4, 8)], ids=str)
    def test_nothing_to_rotate(self, shape):
        assert rotary(torch.empty(shape), *tables(8)).shape == shape

    def test_a_query_without_heads_leaves_the_key_to_rotate(self):
        check(rotary_qk, reference.rotary_qk, torch.empty(4, 0, 16), torch.randn(4, 2, 16), *tables(16))


@pytest.mark.usefixtures("interpreted")
class TestNorms:
    """Norms of heads before the rotation."""

    @pytest.mark.parametrize("dtype", FLOATS, ids=str)
    @pytest.mark.parametrize(("head_dim", "rotary_dim"), WIDTHS)
    def test_every_width(self, head_dim, rotary_dim, dtype):
        query, key = torch.randn(5, 4, head_dim).to(dtype), torch.randn(5, 1, head_dim).to(dtype)
        weights = {f"{name}_weight": torch.rand(head_dim).to(dtype) for name in ("query", "key")}
        for interleaved in (False, True):
            words = {"interleaved": interleaved, "eps": 1e-5, **weights}
            check(rotary_qk, reference.rotary_qk, query, key, *tables(rotary_dim), None, **words)

    def test_in_place_columns_past_the_rotated_ones_are_normalized(self):
        query, key = torch.randn(4, 2, 48), torch.randn(4, 2, 48)
        weights = {"query_weight": torch.rand(96)[::2], "key_weight": torch.rand(48)}
        right = reference.rotary_qk(query, key, *tables(20), **weights)
        for got, expected in zip(rotary_qk(query, key, *tables(20), inplace=True, **weights), right, strict=True):
            torch.testing.assert_close(got, expected)

    def test_rows_of_zeros_and_eps(self):
        query, key, weight = torch.zeros(3, 2, 16), torch.randn(3, 2, 16) * 1e-4, torch.ones(16)
        words = {"query_weight": weight, "key_weight": weight}
        for eps in (None, 1e-3):
            check(rotary_qk, reference.rotary_qk, query, key, *tables(16), eps=eps, **words)


def caches(pages: int, heads: int, size: int, dims: tuple[int, int], dtype: torch.dtype) -> list[Tensor]:
    """Make caches of NaN in the layout [pages, page size, heads, dim], seen as `flex_decoding` reads them."""
    return [torch.full((pages, size, heads, dim), float("nan"), dtype=dtype).transpose(1, 2) for dim in dims]


@pytest.mark.usefixtures("interpreted")
class TestCache:
    """Writes to paged caches."""

    @pytest.mark.parametrize("dtype", FLOATS, ids=str)
    @pytest.mark.parametrize("dims", [(64, 64), (128, 96), (32, 7), (96, 256), (40, 1)], ids=str)
    @pytest.mark.parametrize("has_norm", [False, True])
    def test_key_and_value_are_written_to_their_slots(self, dims, dtype, has_norm):
        dim, v_dim = dims
        query, key, value = (
            torch.randn(9, heads, width).to(dtype) for heads, width in ((6, dim), (2, dim), (2, v_dim))
        )
        value[0] = float("inf")
        slots = torch.randperm(40)[:9]
        slots[3] = -1
        weights = {f"{name}_weight": torch.rand(dim).to(dtype) for name in ("query", "key")} if has_norm else {}
        positions = torch.randint(64, (9,))
        for interleaved in (False, True):
            words = {"interleaved": interleaved, **weights}
            for returns in (False, True):
                own, exact, torchs = (caches(5, 2, 8, dims, kind) for kind in (dtype, torch.float64, dtype))
                operands = (query, key, value, *tables(dim), positions, slots)
                found = rotary_to_cache(*operands, *own, return_key=returns, **words)
                right = reference.rotary_to_cache(
                    *map(wide, operands), *exact, **{k: wide(v) for k, v in words.items()}
                )
                torchs_own = reference.rotary_to_cache(*operands, *torchs, **words)
                found = found if returns else (found,)
                for got, expected, other in zip(found, right, torchs_own, strict=False):
                    assert_accurate(got, expected, other)
                assert_accurate(own[0], exact[0], torchs[0])
                assert_accurate(own[1], exact[1], torchs[1], 0.0)

    def test_partial_rotations_fill_whole_rows(self):
        query, key, value = (torch.randn(2, 3, heads, 80) for heads in (2, 1, 1))
        slots = torch.tensor([[0, 1, 17], [16, 31, -7]])
        own, right = (caches(2, 1, 16, (80, 80), torch.float32) for _ in range(2))
        found = rotary_to_cache(query, key, value, *tables(32), None, slots, *own)
        expected = reference.rotary_to_cache(query, key, value, *tables(32), None, slots, *right)
        for got, other in zip((found, *own), (expected[0], *right), strict=True):
            torch.testing.assert_close(got, other, equal_nan=True)

    def test_autograd_knows_that_caches_were_written_at_each_call(self):
        x, slots = torch.randn(3, 2, 8), torch.arange(3)
        own = torch.zeros(2, 2, 4, 8), torch.zeros(2, 2, 4, 8)
        for calls in (1, 2, 3):
            rotary_to_cache(x, x, x, *tables(8), None, slots, *own)
            assert [cache._version for cache in own] == [calls, calls]

    def test_no_tokens_leave_caches_alone(self):
        own = caches(2, 1, 16, (8, 8), torch.float32)
        empty = torch.empty(0, 1, 8)
        rotary_to_cache(empty, empty, empty, *tables(8), None, torch.empty(0, dtype=torch.int64), *own)
        assert all(cache.isnan().all() for cache in own)

    def test_a_gradient_is_refused(self):
        own = caches(2, 1, 16, (8, 8), torch.float32)
        x = torch.randn(2, 1, 8)
        with pytest.raises(NotImplementedError, match="rotary_to_cache has no gradients"):
            rotary_to_cache(x.clone().requires_grad_(), x, x, *tables(8), None, torch.arange(2), *own)


@pytest.mark.usefixtures("interpreted")
class TestGradients:
    """Gradients of query, key and weights."""

    @pytest.mark.parametrize("dtype", FLOATS, ids=str)
    @pytest.mark.parametrize("has_norm", [False, True])
    @pytest.mark.parametrize(("head_dim", "rotary_dim"), [(64, 64), (48, 20)])
    def test_as_exact_as_torchs(self, head_dim, rotary_dim, has_norm, dtype):
        query, key = torch.randn(2, 5, 4, head_dim).to(dtype), torch.randn(2, 5, 2, head_dim).to(dtype)
        weights = [torch.rand(head_dim).to(dtype) for _ in range(2)] if has_norm else []
        grads = [torch.randn_like(each) for each in (query, key)]
        cos, sin = tables(rotary_dim, dtype)

        def gradients(function, kind: torch.dtype) -> tuple[Tensor, ...]:
            leaves = [value.to(kind).requires_grad_() for value in (query, key, *weights)]
            words = dict(zip(("query_weight", "key_weight"), leaves[2:], strict=False))
            outs = function(*leaves[:2], cos.to(kind), sin.to(kind), **words)
            return torch.autograd.grad(outs, leaves, [grad.to(kind) for grad in grads])

        exact, own = gradients(reference.rotary_qk, torch.float64), gradients(reference.rotary_qk, dtype)
        for got, right, torchs in zip(gradients(rotary_qk, dtype), exact, own, strict=True):
            assert_accurate(got, right, torchs, 3.0)

    @pytest.mark.parametrize("has_norm", [False, True])
    @pytest.mark.parametrize("place", [0, 1])
    def test_of_each_operand_and_result_alone(self, place, has_norm):
        given = [torch.randn(3, 2, 16), torch.randn(3, 1, 16)]
        words = {f"{name}_weight": torch.rand(16) for name in ("query", "key")} if has_norm else {}
        found = []
        for function in (rotary_qk, reference.rotary_qk):
            own = [value.clone() for value in given]
            own[place].requires_grad_()
            outs = function(*own, *tables(16), **words)
            found.append(torch.autograd.grad(outs[place].sum(), own[place])[0])
        torch.testing.assert_close(*found)

    def test_of_a_weight_alone(self):
        query, key, weight = torch.randn(3, 2, 16), torch.randn(3, 1, 16), torch.rand(16)
        found = []
        for function in (rotary_qk, reference.rotary_qk):
            own = weight.clone().requires_grad_()
            outs = function(query, key, *tables(16), query_weight=weight, key_weight=own)
            found.append(torch.autograd.grad(outs[1].square().sum() + outs[0].sum(), own)[0])
        torch.testing.assert_close(*found)

    def test_rotations_have_every_derivative(self):
        x = torch.randn(3, 2, 16, requires_grad=True)
        cos, sin = tables(12)
        found = []
        for function in (rotary, reference.rotary):
            (grad,) = torch.autograd.grad(function(x, cos, sin).pow(3).sum(), x, create_graph=True)
            found.append(torch.autograd.grad(grad.pow(2).sum(), x)[0])
        torch.testing.assert_close(*found)

    def test_in_place_and_tables_that_require_grad_are_refused(self):
        x, y = torch.randn(3, 2, 16, requires_grad=True), torch.randn(3, 2, 16)
        cos, sin = tables(16)
        for call in (
            lambda: rotary_qk(x, y, cos, sin, inplace=True),
            lambda: rotary(x, cos, sin, out=torch.empty(3, 2, 16)),
            lambda: rotary(y, cos.clone().requires_grad_(), sin),
            lambda: rotary_qk(y, y, cos, sin.clone().requires_grad_()),
        ):
            with pytest.raises(ValueError, match="grad"):
                call()


@pytest.mark.usefixtures("interpreted")
class TestTorch:
    """The operators as torch's."""

    @pytest.mark.parametrize("has_norm", [False, True])
    def test_opcheck(self, has_norm):
        query, key = torch.randn(4, 3, 16, requires_grad=True), torch.randn(4, 1, 16, requires_grad=True)
        weights = [torch.rand(16, requires_grad=True) if has_norm else None for _ in range(2)]
        rest = (*tables(16), torch.arange(4), 1e-6, False, False)
        torch.library.opcheck(torch.ops.nojit.rotary.default, (query, key, *weights, *rest))
        torch.library.opcheck(torch.ops.nojit.rotary.default, (query, None, weights[0], None, *rest))

    def test_opcheck_of_operators_that_write(self):
        query, key, value = torch.randn(4, 3, 16), torch.randn(4, 1, 16), torch.randn(4, 1, 8)
        rest = (None, None, *tables(16), torch.arange(4))
        outs = (torch.empty(4, 3, 16), torch.empty(4, 1, 16))
        torch.library.opcheck(torch.ops.nojit.rotary_out.default, (query, key, *rest, 0.0, True, False, *outs))
        torch.library.opcheck(torch.ops.nojit.rotary_out.default, (query, None, *rest, 0.0, True, False, outs[0], None))
        own = [torch.zeros(2, 1, 4, dim) for dim in (16, 8)]
        for returns in (False, True):
            given = (query, key, value, *rest, torch.arange(4), *own, 0.0, False, returns)
            torch.library.opcheck(torch.ops.nojit.rotary_to_cache.default, given)

    def test_compiles_whole(self):
        query, key, value = torch.randn(4, 3, 16), torch.randn(4, 1, 16), torch.randn(4, 1, 8)
        cos, sin = tables(16)
        slots = torch.arange(4)

        def model(query, key, value, key_cache, value_cache):
            turned = rotary_qk(query * 2, key, cos, sin)
            alone = rotary(query, cos, sin)
            into = rotary_qk(alone * 1, turned[1] * 1, cos, sin, inplace=True)
            out = rotary(query, cos, sin, out=torch.empty_like(query))
            cached = rotary_to_cache(*into, value, cos, sin, None, slots, key_cache, value_cache, return_key=True)
            return *turned, alone, *into, out, *cached

        found = []
        for function in (torch.compile(model, backend="aot_eager", fullgraph=True), model):
            own = [torch.zeros(2, 1, 4, dim) for dim in (16, 8)]
            found.append((*function(query, key, value, *own), *own))
        torch.testing.assert_close(*found)

    def test_autograd_notices_writes(self):
        x = torch.randn(3, 2, 16)
        weight = torch.ones(3, 2, 16, requires_grad=True)
        product = (x * weight).sum()
        rotary(x, *tables(16), out=x)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            product.backward()


def test_a_call_like_one_before_is_a_look_up():
    launches: list[str] = []
    query, key, (cos, sin) = torch.randn(4, 2, 64), torch.randn(4, 1, 64), tables(64)
    own = caches(2, 1, 16, (64, 64), torch.float32)
    slots = torch.arange(4)
    with library.override(lambda name: lambda *_, **__: launches.append(name)):
        for _ in range(3):
            rotary(query, cos, sin)
            rotary(query, cos, sin, slots, out=query)
            rotary_qk(query, key, cos, sin, inplace=True)
            rotary_qk(query, key, cos, sin, eps=1)
            rotary_to_cache(query, key, key, cos, sin, slots, slots, *own)
        nothing = (None,) * 3
        source = library.CURRENT.source
        known = op._MEMO(query, key, *nothing, cos, sin, None, *nothing, None, source, "rotary_qk", None, False, True)
        assert known[0] is query
        assert known[1] is key
    assert launches == (["rotary_flat"] * 4 + ["rotary"]) * 3 + ["rotary_flat"]


@pytest.mark.usefixtures("interpreted")
def test_mistakes_are_named():
    x, weight, (cos, sin) = torch.randn(3, 2, 8), torch.randn(8), tables(8)
    own = caches(2, 2, 16, (8, 8), torch.float32)
    slots = torch.arange(3)
    qk = lambda *rest, **words: rotary_qk(x, x, cos, sin, *rest, **words)  # noqa: E731
    to_cache = lambda *rest: rotary_to_cache(x, x, x, cos, sin, None, *rest)  # noqa: E731
    for call, error, words in (
        (lambda: rotary(x[0], cos, sin), ValueError, "x: expected at least 3 dimensions"),
        (lambda: rotary(x.int(), cos, sin), ArgumentError, "x: expected torch.float16"),
        (lambda: rotary(x, cos[0], sin), ValueError, "cos: expected 2 dimensions"),
        (lambda: rotary(x, cos, sin[:2]), ValueError, "sin: expected shape"),
        (lambda: rotary(x, cos[:2], sin[:2]), ValueError, "cos: expected at least 3 rows, one for each token, got 2"),
        (lambda: rotary(x, *tables(10)), ValueError, "cos: expected 1 to 4 columns"),
        (
            lambda: rotary(x.expand(3, 2, 8).repeat(1, 1, 99), *tables(514)),
            ValueError,
            "cos: expected 1 to 256 columns",
        ),
        (lambda: rotary(x, cos.half(), sin.half()), ArgumentError, "cos: expected torch.float32"),
        (lambda: rotary(x, cos, sin, torch.arange(4)), ValueError, "positions: expected shape"),
        (lambda: rotary(x, cos, sin, torch.arange(3).float()), ArgumentError, "positions: expected torch.int32"),
        (lambda: rotary(x, cos, sin, out=x[:2]), ValueError, "out: expected shape"),
        (lambda: rotary(x, cos, sin, out=x.half()), ArgumentError, "out: expected torch.float32"),
        (lambda: rotary(x[:1].expand(3, 2, 8), cos, sin, out=x[:1].expand(3, 2, 8)), ValueError, "repeated elements"),
        (lambda: rotary(x[:2], cos, sin, out=x[1:]), ValueError, "out: expected memory of its own"),
        (lambda: rotary(x.mT.contiguous().mT, cos, sin, out=x.mT.contiguous().mT), ValueError, "out: expected a last"),
        (lambda: qk(inplace=True), ValueError, "key: expected memory of its own"),
        (lambda: qk(query_weight=weight), ValueError, "key_weight: expected a weight"),
        (lambda: qk(key_weight=weight), ValueError, "query_weight: expected a weight"),
        (lambda: qk(query_weight=weight, key_weight=weight[:3]), ValueError, "key_weight: expected shape"),
        (lambda: rotary_qk(x, x[:2], cos, sin), ValueError, "key: expected shape"),
        (lambda: rotary_qk(x, x[None], cos, sin), ValueError, "key: expected 3 dimensions as query has"),
        (lambda: rotary_qk(x, None, cos, sin), ArgumentError, "key: expected a tensor"),
        (lambda: to_cache(slots, own[0], own[1][:1]), ValueError, "value_cache: expected shape"),
        (lambda: to_cache(slots.int(), *own), ArgumentError, "slot_mapping: expected torch.int64"),
        (lambda: to_cache(slots[:2], *own), ValueError, "slot_mapping: expected shape"),
        (lambda: to_cache(slots, *(cache[:, :, :12] for cache in own)), ValueError, "pages of a power of two of rows"),
        (lambda: to_cache(slots, own[0], own[0]), ValueError, "value_cache: expected memory of its own"),
    ):
        with pytest.raises(error, match=words):
            call()
