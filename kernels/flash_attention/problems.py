"""Calls of the flash attention kernels to tune and measure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import torch
from nojit.kernels.attention import problem_results
from nojit.kernels.attention.outputs import allocate_output
from nojit.kernels.attention.problem_shapes import PROBLEMS, AttentionShape, drawn, drawn_wide
from nojit.kernels.flash_attention import launch_sm90_bwd as over_maps
from nojit.kernels.flash_attention import launch_sm90_bwd_wide as over_wide_maps
from nojit.kernels.flash_attention.gradient_parts import allocate_parts
from nojit.kernels.flash_attention.launch import launch_over_pointers
from nojit.kernels.flash_attention.launch_bwd import (
    launch_delta,
    launch_dkdv_over_pointers,
    launch_dq_over_pointers,
)
from nojit.kernels.flash_attention.launch_sm90 import launch_over_maps, maps_of
from nojit.kernels.flash_attention.launch_sm90_bwd import GradientMaps, Workspace
from nojit.kernels.flash_attention.launch_sm90_bwd_wide import Part, WideWorkspace
from nojit.kernels.problem import Roles, TuningProblem, Work, check_use, generator, requested, rounding
from torch import Tensor

__all__ = [
    "PROBLEMS",
    "ROLES",
    "AttentionProblem",
    "AttentionShape",
    "GradientProblem",
    "MappedGradientProblem",
    "WideGradientProblem",
    "problems",
]

_TILES: Final = ("BLOCK_M", "BLOCK_N")
_CASE: Final = ("MASK", "BLOCK_D", "BLOCK_DV", "EVEN_D")
ROLES: Final[Mapping[str, Roles]] = {
    "flash_attention_fwd": Roles(_TILES, (), _CASE),
    "flash_attention_fwd_fp8": Roles(_TILES, (), _CASE),
    "flash_attention_fwd_sm90": Roles(
        (*_TILES, "STAGES", "Q_STAGES", "SPAN", "TURNS"), (), ("CAUSAL", "BLOCK_D", "BLOCK_DV", "DEPTH")
    ),
    "flash_attention_values": Roles(("BLOCK_N", "BLOCK_DV"), (), ()),
    "flash_attention_fwd_fp8_sm90": Roles(
        (*_TILES, "STAGES", "Q_STAGES", "SPAN", "TURNS"), (), ("CAUSAL", "BLOCK_D", "BLOCK_DV", "DEPTH")
    ),
    "flash_attention_bwd_delta": Roles(("BLOCK_M",), (), ("BLOCK_DV",)),
    "flash_attention_bwd_dkdv": Roles(_TILES, (), _CASE),
    "flash_attention_bwd_dq": Roles(_TILES, (), _CASE),
    "flash_attention_bwd_sm90_prepare": Roles((), (), ("BLOCK_D", "BLOCK_M")),
    "flash_attention_bwd_sm90": Roles(("STAGES", "SPAN"), (), ("CAUSAL", "BLOCK_D", "BLOCK_M")),
    "flash_attention_bwd_sm90_finish": Roles(("BLOCK_M",), (), ("BLOCK_D",)),
    "flash_attention_bwd_sm90_merge": Roles(("BLOCK_N",), (), ("BLOCK_D",)),
    "flash_attention_bwd_dkdv_sm90": Roles(("STAGES", "SLOTS", "SPAN"), (), ("CAUSAL", "BLOCK_D", "BLOCK_DV", "DEPTH")),
    "flash_attention_bwd_dq_sm90": Roles(("STAGES",), (), ("CAUSAL", "BLOCK_D", "DEPTH")),
}
# kernels of the forward pass whose configs are by hand
_FORWARD_BY_HAND: Final = ("flash_attention_values", "flash_attention_fwd_fp8_sm90")
# the gradient kernels of heads wider than 128
_WIDE: Final = ("flash_attention_bwd_dkdv_sm90", "flash_attention_bwd_dq_sm90")
# the kernels of the forward pass, and the dtype measured for each
_FORWARD: Final = {
    "flash_attention_fwd": "bf16",
    "flash_attention_fwd_fp8": "fp8e4nv",
    "flash_attention_fwd_sm90": "bf16",
}
_DTYPES: Final = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp8e4nv": torch.float8_e4m3fn}


@dataclass(frozen=True, slots=True)
class _AttentionCall:
    """One call of one kernel, in one dtype; base class of the problems."""

    problem: AttentionShape
    dtype: str
    kernel: str

    @property
    def name(self) -> str:
        """The name of the shape."""
        return self.problem.name

    @property
    def shape_class(self) -> str:
        """The class of the shape in reports: the ratio of queries to keys."""
        return self.problem.kind

    @property
    def sizes(self) -> Mapping[str, int | bool | str]:
        """Size arguments of the call by name, for the tuner."""
        return self.problem.sizes

    def _operands(self, device: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return random q, k, v and dout on `device`."""
        problem, dtype = self.problem, _DTYPES[self.dtype]
        source = generator(problem.name, device)

        def random(heads: int, length: int, dim: int) -> Tensor:
            # torch generates no random e4m3: generate bf16 and cast
            drawn_in = dtype if dtype.itemsize > 1 else torch.bfloat16
            shape = (problem.batch, heads, length, dim)
            return torch.randn(shape, generator=source, device=device, dtype=drawn_in).to(dtype)

        return (
            random(problem.heads, problem.q_len, problem.head_dim),
            random(problem.kv_heads, problem.kv_len, problem.head_dim),
            random(problem.kv_heads, problem.kv_len, problem.v_dim),
            random(problem.heads, problem.q_len, problem.v_dim),
        )


@dataclass(frozen=True, slots=True)
class AttentionProblem(_AttentionCall):
    """One call of a forward kernel."""

    kernel: str = "flash_attention_fwd"

    def prepare(self, device: str) -> Work:
        """Return random operands on `device`, and the expected results of the first and the last head."""
        problem = self.problem
        q, k, v, _ = self._operands(device)
        out = allocate_output(q, v)
        launch, _ = requested(lambda: self._launch(q, k, v, out))
        group = problem.heads // problem.kv_heads
        parts = [
            part
            for batch, head in ((0, 0), (-1, problem.heads - 1))
            for part in problem_results.output_parts(
                (q[batch, head], k[batch, head // group], v[batch, head // group]), out[batch, head], problem
            )
        ]
        return problem_results.work(launch, parts, (q, k, v, out), problem.flops)

    def _launch(self, q: Tensor, k: Tensor, v: Tensor, out: Tensor) -> None:
        """Launch this problem's kernel, even where the operator would choose another one."""
        scale, mask = self.problem.head_dim**-0.5, self.problem.mask
        maps = maps_of(q, k, v, out, scale) if self.kernel == "flash_attention_fwd_sm90" else None
        if maps is None:
            launch_over_pointers(q, k, v, out, None, scale, mask)
        else:
            launch_over_maps(maps, None, scale, mask)


@dataclass(frozen=True, slots=True)
class GradientProblem(_AttentionCall):
    """One call of a backward kernel that takes pointers."""

    def prepare(self, device: str) -> Work:
        """Return random operands on `device`, and expected gradients for the first and the last key head."""
        if self.kernel == "flash_attention_bwd_delta":
            return self._prepare_delta(device)
        problem = self.problem
        q, k, v, dout = self._operands(device)
        sums = problem_results.RowSums.guessed(problem, device)
        written = tuple(map(torch.empty_like, (q, k, v)))
        parts = [
            part
            for batch, head in ((0, 0), (-1, problem.kv_heads - 1))
            for part in problem_results.gradient_parts((q, k, v, dout), written, sums, (batch, head), problem)
        ]
        scale, mask, (dq, dk, dv) = problem.head_dim**-0.5, problem.mask, written
        given = (q, k, v, dout, sums.lse, sums.delta)
        if self.kernel == "flash_attention_bwd_dq":
            launch, _ = requested(lambda: launch_dq_over_pointers(*given, dq, scale, mask))
            parts = [part for part in parts if part.gradient == 0]
            return problem_results.work(launch, parts, (*given, dq), 3 * problem.flops // 2)
        launch, _ = requested(lambda: launch_dkdv_over_pointers(*given, dk, dv, scale, mask))
        parts = [part for part in parts if part.gradient > 0]
        return problem_results.work(launch, parts, (*given, dk, dv), 2 * problem.flops)

    def _prepare_delta(self, device: str) -> Work:
        out, dout = (self._operands(device)[-1].roll(shift, 2) for shift in (0, 1))
        delta = torch.empty(out.shape[:3], device=device)
        launch, _ = requested(lambda: launch_delta(out, dout, delta, None, delta))
        exact = (out.float() * dout.float()).sum(-1)
        part = problem_results.Part(delta, exact, rounding(exact, torch.float32))
        return problem_results.work(launch, [part], (out, dout, delta), 2 * out.numel())


@dataclass(frozen=True, slots=True)
class MappedGradientProblem(_AttentionCall):
    """One call of an sm_90 backward kernel, which takes TMA descriptors."""

    def prepare(self, device: str) -> Work:
        """Return random operands and workspaces on `device`; sums are in any order, so that a launch can be repeated."""
        q, k, v, dout = self._operands(device)
        dq, dk, dv = map(torch.empty_like, (q, k, v))
        maps = over_maps.describe_gradients(q, k, v, dout, dk, dv)
        if maps is None:
            raise ValueError(f"expected rows of a multiple of 16 bytes, got {self.problem}")
        room = over_maps.allocate_workspace(maps, deterministic=False)
        if self.kernel == "flash_attention_bwd_sm90_prepare":
            return self._prepare_statistics(maps, room)
        if self.kernel == "flash_attention_bwd_sm90_finish":
            return self._prepare_finish(maps, room, dq)
        if self.kernel == "flash_attention_bwd_sm90_merge":
            return self._prepare_merge(maps)
        return self._prepare_gradients(maps, room)

    def _prepare_statistics(self, maps: GradientMaps, room: Workspace) -> Work:
        out, dout = (maps.dout.base.roll(shift, 2) for shift in (1, 0))
        lse = out[..., 0].float()
        launch, _ = requested(lambda: over_maps.launch_prepare(maps, out, lse, None, room.statistics, room.turns))
        written = room.statistics[..., : self.problem.q_len]
        exact = torch.stack([lse / math.log(2), (out.float() * dout.float()).sum(-1)])
        part = problem_results.Part(written, exact, rounding(exact, torch.float32))
        return problem_results.work(launch, [part], (out, dout, lse, written), 2 * out.numel())

    def _prepare_finish(self, maps: GradientMaps, room: Workspace, dq: Tensor) -> Work:
        room.sums.copy_(maps.q.base)
        lse = room.sums[..., 0].contiguous()
        launch, _ = requested(lambda: over_maps.launch_finish(maps, room, lse, dq, 0.5))
        part = problem_results.Part(dq, room.sums * 0.5, rounding(room.sums * 0.5, dq.dtype))
        return problem_results.work(launch, [part], (room.sums, dq), dq.numel())

    def _prepare_merge(self, maps: GradientMaps) -> Work:
        written = allocate_parts(maps.dk, maps.dv, 3)
        gradients = maps.dk.base, maps.dv.base
        launch, _ = requested(lambda: over_maps.launch_merge(written, *gradients))
        found = []
        for parts, gradient in zip((written.dk.base, written.dv.base), gradients, strict=True):
            parts.normal_()
            exact = parts.unflatten(1, (-1, 3)).float().sum(2)
            found.append(problem_results.Part(gradient, exact, rounding(exact, gradient.dtype)))
        tensors = (written.dk.base, written.dv.base, *gradients)
        return problem_results.work(launch, found, tensors, written.dk.base.numel() + written.dv.base.numel())

    def _prepare_gradients(self, maps: GradientMaps, room: Workspace) -> Work:
        problem = self.problem
        written = allocate_parts(maps.dk, maps.dv, 1)
        parts = _guessed_gradients(problem, maps, room.statistics)
        launch, _ = requested(
            lambda: over_maps.launch_gradients_over_maps(maps, written, room, problem.head_dim**-0.5, problem.mask)
        )
        tensors = [each.base for each in maps]
        return problem_results.work(
            launch, [part for part in parts if part.gradient], (*tensors, room.sums), 5 * problem.flops // 2
        )


@dataclass(frozen=True, slots=True)
class WideGradientProblem(_AttentionCall):
    """One call of an sm_90 backward kernel for wide heads."""

    def prepare(self, device: str) -> Work:
        """Return random operands on `device`, for the first part of the call."""
        problem = self.problem
        q, k, v, dout = self._operands(device)
        dq, dk, dv = map(torch.empty_like, (q, k, v))
        maps = over_maps.describe_gradients(q, k, v, dout, dk, dv)
        if maps is None:
            raise ValueError(f"expected rows of a multiple of 16 bytes, got {problem}")
        whole = over_wide_maps.Part(slice(0, problem.batch), slice(0, problem.kv_heads), slice(0, problem.q_len))
        room = over_wide_maps.allocate_wide(maps, [whole])
        scale = problem.head_dim**-0.5
        if self.kernel == "flash_attention_bwd_dq_sm90":
            return self._prepare_queries(maps, room, whole, dq)
        parts = _guessed_gradients(problem, maps, room.statistics)
        launch, _ = requested(
            lambda: over_wide_maps.launch_dkdv(maps, room, whole, problem.kv_len, 0, scale, problem.mask)
        )
        tensors = [each.base for each in maps]
        return problem_results.work(
            launch, [part for part in parts if part.gradient], (*tensors, room.scores), 2 * problem.flops
        )

    def _prepare_queries(self, maps: GradientMaps, room: WideWorkspace, whole: Part, dq: Tensor) -> Work:
        """Fill the workspace with score gradients, and expect their products with the keys of the first and the last head."""
        problem, (k, scale) = self.problem, (maps.k.base, self.problem.head_dim**-0.5)
        room.scores.copy_(torch.randn_like(room.scores))
        launch, _ = requested(
            lambda: over_wide_maps.launch_dq(maps, room, whole, problem.kv_len, dq, scale, problem.mask)
        )
        group = problem.heads // problem.kv_heads
        parts = []
        for batch, head in ((0, 0), (problem.batch - 1, problem.heads - 1)):
            scores = room.scores[batch * problem.heads + head, :, : problem.q_len].float().mT
            if problem.is_causal:
                scores = scores.tril(problem.offset)
            exact = scores @ k[batch, head // group].float() * scale
            parts.append(problem_results.Part(dq[batch, head], exact, rounding(exact, dq.dtype)))
        return problem_results.work(launch, parts, (room.scores, k, dq), problem.flops // 2)


def _guessed_gradients(shape: AttentionShape, maps: GradientMaps, statistics: Tensor) -> list[problem_results.Part]:
    """Fill `statistics` as the kernel before would, exactly for the first and the last key head; return these heads' gradients."""
    q, k, v, dout, dk, dv = (each.base for each in maps)
    sums = problem_results.RowSums.guessed(shape, str(q.device))
    parts = [
        part
        for batch, head in ((0, 0), (-1, shape.kv_heads - 1))
        for part in problem_results.gradient_parts((q, k, v, dout), (q, dk, dv), sums, (batch, head), shape)
    ]
    for statistic, past_the_end, rows in zip(
        statistics, (math.inf, 0.0), (sums.lse / math.log(2), sums.delta), strict=True
    ):
        statistic.fill_(past_the_end)[..., : shape.q_len] = rows
    return parts


def problems(use: str) -> tuple[TuningProblem, ...]:
    """List the problems for a `use` such as ``"tune"``, ``"held_out"`` or ``"fresh"``; `nojit.kernels.problem` defines them.

    Raises:
        ValueError: an unknown use.
    """
    check_use(use)
    found = (*PROBLEMS.get(use, ()), *drawn(use))
    # gradients are for training, which does not decode: leave out shapes with few queries
    trained = [problem for problem in found if problem.kind in {"short", "long"}]
    return (
        *(AttentionProblem(problem, dtype, kernel) for kernel, dtype in _FORWARD.items() for problem in found),
        *(AttentionProblem(problem, "bf16", "flash_attention_fwd_sm90") for problem in drawn_wide(use)),
        *(
            (MappedGradientProblem if "_sm90" in kernel else GradientProblem)(problem, "bf16", kernel)
            for kernel in ROLES
            if kernel not in {*_FORWARD, *_FORWARD_BY_HAND, *_WIDE}
            for problem in trained
        ),
    )
