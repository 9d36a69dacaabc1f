"""Tensor descriptors: Triton's and Gluon's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nojit.runtime.serve.standin.callbacks import since
from nojit.runtime.serve.standin.driver import driver
from nojit.runtime.serve.standin.registry import exported
from nojit.runtime.serve.standin.shared_layouts import NVMMASharedLayout
from nojit.runtime.serve.standin.type_names import BITS, canonicalize_dtype, is_power_of_two, validate_block_shape

__all__ = ["GluonTensorDescriptor", "TensorDescriptor", "TensorDescriptorIm2Col"]

# torch's tensors without an address
_TRACED = ("FakeTensor", "FunctionalTensor")
# of im2col, by rank: the least and greatest offset of a corner
_CORNERS = {3: (-32768, 32767), 4: (-128, 127), 5: (-16, 15)}


def _expect(condition: object, what: str) -> None:
    # Triton's own errors are assertions
    if not condition:
        raise AssertionError(what)


def _check_padding(descriptor: Any) -> None:
    base, padding = descriptor.base, descriptor.padding
    _expect(padding in {"zero", "nan"}, "Illegal value for padding")
    if padding == "nan":
        _expect(base.dtype.is_floating_point, "Padding option `nan` is only supported for floating point tensors")
    if descriptor.round_f32_to_tf32:
        _expect(canonicalize_dtype(base.dtype) == "fp32", "round_f32_to_tf32 is only supported for float32 tensors")


def _check_sizes(descriptor: Any, element_bytes: int) -> None:
    for stride in descriptor.strides[:-1]:
        _expect((stride * element_bytes) % 16 == 0, "strides must be 16-byte aligned")
    for size in descriptor.shape:
        _expect(size > 0, "shape must be positive")
    _expect(descriptor.strides[-1] == 1, "Last dimension must be contiguous")


@exported("triton.tools.tensor_descriptor")
@dataclass
class TensorDescriptor:
    """A tensor that a kernel reads and writes in blocks.

    Attributes:
        base: the tensor.
        shape: its sizes.
        strides: in elements.
        block_shape: a block's sizes.
        padding: ``zero`` or ``nan``, for elements outside.
        round_f32_to_tf32: whether loads round.

    Raises:
        AssertionError: the GPU cannot read such blocks.
    """

    base: Any
    shape: Any
    strides: Any
    block_shape: Any
    padding: str = "zero"
    round_f32_to_tf32: bool = False

    def __post_init__(self) -> None:
        rank = len(self.shape)
        _expect(len(self.strides) == rank, f"rank mismatch: {self}")
        _expect(len(self.block_shape) == rank, f"rank mismatch: {self}")
        _expect(rank > 0, "rank must not be zero")
        _expect(rank <= 5, "rank cannot be more than 5")
        if type(self.base).__name__ not in _TRACED:
            _expect(self.base.data_ptr() % 16 == 0, "base must be 16-byte aligned")
        validate_block_shape(self.block_shape)
        _check_sizes(self, self.base.dtype.itemsize)
        _check_padding(self)

    @staticmethod
    def from_tensor(
        tensor: Any, block_shape: Any, padding: str = "zero", round_f32_to_tf32: bool = False
    ) -> TensorDescriptor:
        """Describe a whole tensor."""
        return TensorDescriptor(tensor, tensor.shape, tensor.stride(), block_shape, padding, round_f32_to_tf32)


def _check_gluon(descriptor: Any) -> int:
    base, layout = descriptor.base, descriptor.layout
    rank = len(descriptor.shape)
    _expect(len(descriptor.strides) == rank, "strides rank mismatch")
    _expect(0 < rank <= 5, "rank must be 1-5")
    _expect(base.data_ptr() % 16 == 0, "base must be 16-byte aligned")
    element_bytes = BITS[canonicalize_dtype(base.dtype)] // 8
    _check_sizes(descriptor, element_bytes)
    _expect(isinstance(layout, NVMMASharedLayout), "Layout must be NVMMASharedLayout")
    if since("3.9"):
        _expect(layout.rank == len(descriptor.block_shape), "layout rank must match block shape rank")
    _check_padding(descriptor)
    _expect(element_bytes * 8 == layout.element_bitwidth, "")
    least = layout.swizzle_byte_width // (element_bytes * (2 if layout.fp4_padded else 1))
    last = descriptor.block_shape[-1]
    _expect(last >= least, f"Expected block_shape[-1] to be at least {least} but got {last}")
    if layout.fp4_padded:
        _check_fp4(descriptor, element_bytes)
    bits = layout.element_bitwidth
    _expect(bits in {8, 16, 32}, f"tensor descriptor dtype must be 8, 16, or 32 bits, but got {bits}")
    return rank


def _check_fp4(descriptor: Any, element_bytes: int) -> None:
    _expect(descriptor.base.data_ptr() % 32 == 0, "For fp4_padded, base must 32-byte aligned")
    for stride in descriptor.strides[:-1]:
        _expect((stride * element_bytes) % 32 == 0, "For fp4_padded, tensor strides must be 32-byte aligned")
    try:
        target = driver.active.get_current_target()
    except RuntimeError:
        return
    _expect(target.backend == "cuda" and int(target.arch) >= 100, "fp4_padded requires blackwell or newer")


@exported("triton.experimental.gluon.nvidia.hopper", "TensorDescriptor")
@dataclass
class GluonTensorDescriptor:
    """A tensor that a Gluon kernel reads and writes in blocks.

    Attributes:
        base: the tensor.
        shape: its sizes.
        strides: in elements.
        block_shape: a block's sizes.
        layout: a block's in shared memory.
        padding: ``zero`` or ``nan``, for elements outside.
        round_f32_to_tf32: whether loads round.

    Raises:
        AssertionError: the GPU cannot read such blocks.
    """

    base: Any
    shape: Any
    strides: Any
    block_shape: Any
    layout: Any
    padding: str = "zero"
    round_f32_to_tf32: bool = False

    def __post_init__(self) -> None:
        rank = len(self.shape)
        _expect(len(self.block_shape) == rank, f"tiled: block_shape must match rank {rank}")
        _check_gluon(self)
        validate_block_shape(self.block_shape)

    @property
    def mode(self) -> str:
        """How blocks are read."""
        return "tiled"

    def __mangle__(self) -> str:
        """Return the type, as signatures hold it."""
        return _type_of(self, "tensordesc")

    @staticmethod
    def from_tensor(
        tensor: Any, block_shape: Any, layout: Any, padding: str = "zero", round_f32_to_tf32: bool = False
    ) -> GluonTensorDescriptor:
        """Describe a whole tensor."""
        return GluonTensorDescriptor(
            tensor, tensor.shape, tensor.stride(), block_shape, layout, padding, round_f32_to_tf32
        )


def _type_of(descriptor: Any, kind: str) -> str:
    sizes = ",".join(map(str, descriptor.block_shape))
    return f"{kind}<{canonicalize_dtype(descriptor.base.dtype)}[{sizes}],{descriptor.layout!r}>"


@exported("triton.experimental.gluon.nvidia.hopper")
@dataclass
class TensorDescriptorIm2Col:
    """A tensor that a Gluon kernel reads as a convolution's columns.

    Attributes:
        base: the tensor.
        shape: its sizes.
        strides: in elements.
        block_shape: pixels and channels of a block.
        layout: a block's in shared memory.
        padding: ``zero`` or ``nan``, for elements outside.
        round_f32_to_tf32: whether loads round.
        element_strides: steps between the elements that are read.
        pixel_box_lower_corner: first offset of each spatial dimension.
        pixel_box_upper_corner: last offset of each spatial dimension.

    Raises:
        AssertionError: the GPU cannot read such blocks.
    """

    base: Any
    shape: Any
    strides: Any
    block_shape: Any
    layout: Any
    padding: str = "zero"
    round_f32_to_tf32: bool = False
    element_strides: Any = None
    pixel_box_lower_corner: Any = None
    pixel_box_upper_corner: Any = None

    def __post_init__(self) -> None:
        _expect(len(self.block_shape) == 2, "im2col: block_shape must be 2D")
        rank = _check_gluon(self)
        if self.element_strides is not None:
            self._check_steps(rank)
        _expect(rank in _CORNERS, f"im2col mode requires rank 3, 4, or 5, got {rank}")
        low, high = _CORNERS[rank]
        for name in ("lower", "upper"):
            corner = getattr(self, f"pixel_box_{name}_corner")
            _expect(corner is not None, f"pixel_box_{name}_corner required for im2col")
            _expect(len(corner) == rank - 2, f"pixel_box_{name}_corner length mismatch")
            for place, offset in enumerate(corner):
                _expect(
                    low <= offset <= high, f"pixel_box_{name}_corner[{place}] must be in [{low}, {high}], got {offset}"
                )
        for place, size in enumerate(self.block_shape):
            _expect(is_power_of_two(size), f"block_shape[{place}] must be power of 2, got {size}")

    def _check_steps(self, rank: int) -> None:
        steps = self.element_strides
        _expect(len(steps) == rank, f"element_strides length mismatch: expected {rank}, got {len(steps)}")
        for place, step in enumerate(steps):
            _expect(0 < step <= 8, f"element_strides[{place}] must be in (0, 8], got {step}")
        _expect(steps[-1] == 1, f"element_strides[-1] must be 1, got {steps[-1]}")

    @property
    def mode(self) -> str:
        """How blocks are read."""
        return "im2col"

    def __mangle__(self) -> str:
        """Return the type, as signatures hold it."""
        return _type_of(self, "tensordesc_im2col")

    @staticmethod
    def from_tensor(tensor: Any, block_shape: Any, layout: Any, *settings: Any, **named: Any) -> TensorDescriptorIm2Col:
        """Describe a whole tensor; settings are those of the class, in its order."""
        return TensorDescriptorIm2Col(tensor, tensor.shape, tensor.stride(), block_shape, layout, *settings, **named)
