"""Registration of operators and their gradients with torch's dispatcher, in the namespace ``nojit``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor

__all__ = ["define", "dense", "write_nothing"]

_LIBRARY: Final = torch.library.Library("nojit", "FRAGMENT")
_TAGS: Final = (torch.Tag.pt2_compliant_tag,)


def write_nothing(*_: object) -> None:
    """Trace an operator that only writes to its arguments."""


def define(
    schema: str,
    run: Callable[..., Any],
    fake: Callable[..., Any] = write_nothing,
    *,
    backward: Callable[..., Any] | None = None,
    save: Callable[..., None] | None = None,
) -> Any:
    """Register an operator for all devices, and return it; a call of it goes through torch's dispatcher.

    Args:
        schema: name, arguments and results, as torch spells them: ``"name(Tensor a, float b) -> Tensor"``.
        run: runs a call.
        fake: allocates results of the same shapes and dtypes without running, for torch's tracing.
        backward: returns the gradients of all arguments; None if torch is not to differentiate the operator.
        save: stores in the context what `backward` reads.
    """
    name = schema.partition("(")[0]
    _LIBRARY.define(schema, tags=_TAGS)
    _LIBRARY.impl(name, run, "CompositeExplicitAutograd")
    torch.library.register_fake(f"nojit::{name}", fake, lib=_LIBRARY)
    if backward is not None:
        torch.library.register_autograd(f"nojit::{name}", backward, setup_context=save, lib=_LIBRARY)
    return getattr(torch.ops.nojit, name).default


def dense(grad: Tensor) -> Tensor:
    """Return a gradient without strides of 0, as kernels of products want their operands; that of a sum has them."""
    return grad.contiguous() if 0 in grad.stride() else grad
