"""Name the kind of a tensor that no kernel can take. Imports no framework; asks the tensor, and torch if the program has imported it."""

from __future__ import annotations

import sys
from typing import Any, Final

__all__ = ["kind_of"]

_OPERATOR: Final = "wrap the call in an operator, nojit.torch.custom_op, which torch can trace"
# by class name in torch
_CLASSES: Final = {
    "FakeTensor": f"a fake tensor, which torch traces with; {_OPERATOR}",
    "FunctionalTensor": f"a functional tensor, which torch traces with; {_OPERATOR}",
}
_LAYOUTS: Final = {"torch.strided": "", "torch.jagged": "a nested tensor; pass its values() and offsets()"}


def kind_of(tensor: Any) -> str:
    """Return the kind of a tensor without plain memory, and what to pass instead; empty for any other object.

    Args:
        tensor: any object; reading its attributes may raise.
    """
    try:
        return _wrapped(tensor) or _told(tensor)
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - the tensor's own code, and what went wrong before is told instead
        return ""


def _told(tensor: Any) -> str:
    if type(tensor).__name__ in _CLASSES and type(tensor).__module__.startswith("torch."):
        return _CLASSES[type(tensor).__name__]
    layout = str(getattr(tensor, "layout", "torch.strided"))
    if getattr(tensor, "is_nested", False) is True:
        return _LAYOUTS["torch.jagged"]
    if getattr(tensor, "is_meta", False) is True:
        return "a meta tensor, which has a shape and no memory"
    if getattr(tensor, "is_quantized", False) is True:
        return "a quantized tensor; pass its int_repr()"
    if layout not in _LAYOUTS:
        kind = "a sparse" if layout.startswith("torch.sparse") else "an opaque"
        return f"{kind} tensor of layout {layout}; pass the tensors that it is made of"
    return _LAYOUTS[layout]


def _wrapped(tensor: Any) -> str:
    """Return the name of torch's wrapper around a tensor while it transforms or traces a call."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(tensor, torch.Tensor):
        return ""
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor):  # noqa: SLF001 - torch tells it nowhere else
        return "a tensor inside torch.vmap or a transform of torch.func; call the kernel outside of it"
    if torch._is_functional_tensor(tensor):  # noqa: SLF001 - as above
        return _CLASSES["FunctionalTensor"]
    if tensor._is_zerotensor():  # noqa: SLF001 - as above
        return "a tensor of zeros without memory, as forward-mode gradients have; pass its clone()"
    return ""
