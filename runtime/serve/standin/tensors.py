"""Arguments in place of tensors: a dtype for a warmup, or a tensor that is read as another dtype."""

from __future__ import annotations

from typing import Any

from nojit.runtime.serve.standin.registry import exported

__all__ = ["MockTensor", "TensorWrapper", "reinterpret"]


@exported("triton.runtime.jit")
class MockTensor:
    """Placeholder for a tensor: known dtype, allocator alignment.

    Args:
        dtype: torch's.
        shape: sizes; one element if there are none.
    """

    def __init__(self, dtype: Any, shape: Any = None) -> None:
        self.dtype = dtype
        self.shape = [1] if shape is None else shape

    @staticmethod
    def wrap_dtype(arg: Any) -> Any:
        """Return a placeholder for a dtype of torch's, and any other argument as it is."""
        kind = type(arg)
        return MockTensor(arg) if kind.__name__ == "dtype" and kind.__module__ == "torch" else arg

    def stride(self) -> tuple[int, ...]:
        """Return the strides."""
        strides = [1]
        for size in self.shape[1:]:
            strides.append(strides[-1] * size)
        return tuple(reversed(strides))

    @staticmethod
    def data_ptr() -> int:
        """Return an address that has every alignment."""
        return 0

    @staticmethod
    def ptr_range() -> int:
        """Return the bytes behind the address."""
        return 0


@exported("triton.runtime.jit")
class TensorWrapper:
    """A tensor that is read as another dtype.

    Args:
        base: the tensor.
        dtype: Triton's.
    """

    def __init__(self, base: Any, dtype: Any) -> None:
        self.base = base
        self.dtype = dtype
        self.data = base.data
        self.device = base.device
        self.shape = base.shape

    def data_ptr(self) -> int:
        """Return the address."""
        return self.base.data_ptr()  # type: ignore[no-any-return] # torch's

    def stride(self, *args: Any) -> Any:
        """Return the strides."""
        return self.base.stride(*args)

    def element_size(self) -> int:
        """Return the bytes of an element."""
        return self.base.element_size()  # type: ignore[no-any-return] # torch's

    def cpu(self) -> TensorWrapper:
        """Return a copy on the CPU."""
        return TensorWrapper(self.base.cpu(), self.dtype)

    def to(self, device: Any) -> TensorWrapper:
        """Return a copy on a device."""
        return TensorWrapper(self.base.to(device), self.dtype)

    def clone(self) -> TensorWrapper:
        """Return a copy."""
        return TensorWrapper(self.base.clone(), self.dtype)

    def copy_(self, other: Any) -> None:
        """Copy another one's values."""
        self.base.copy_(other.base)

    def new_empty(self, sizes: Any) -> TensorWrapper:
        """Return another one, on the same device."""
        return TensorWrapper(self.base.new_empty(sizes), self.dtype)

    def __str__(self) -> str:
        return f"TensorWrapper[{self.dtype}]({self.base})"


@exported("triton.runtime.jit")
def reinterpret(tensor: Any, dtype: Any) -> Any:
    """Return a tensor that is read as another dtype.

    Raises:
        TypeError: this is no tensor.
    """
    if isinstance(tensor, TensorWrapper):
        return tensor.base if dtype == tensor.base.dtype else TensorWrapper(tensor.base, dtype)
    if hasattr(tensor, "data_ptr"):
        return TensorWrapper(tensor, dtype)
    raise TypeError(f"Cannot reinterpret a {type(tensor)}.")
