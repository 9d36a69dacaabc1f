"""Registration of operators and their gradients with torch's dispatcher, in the namespace ``nojit``.

Torch's dispatcher runs Python code several times for an operator that has gradients, which takes longer than a launch. Calls
for which it would do nothing else therefore skip it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from nojit.kernels import library
from nojit.kernels.calls.torch_state import PLAIN, PLAIN_OR_RECORDED
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
    """Register an operator for all devices, and return a function that calls it.

    A call goes through torch's dispatcher, unless torch would only run it, or record it for a backward pass.

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
    return _direct(getattr(torch.ops.nojit, name).default, run, backward, save)


def _direct(
    op: Any, run: Callable[..., Any], backward: Callable[..., Any] | None, save: Callable[..., None] | None
) -> Callable[..., Any]:
    """Return a function that calls an operator, past torch's dispatcher where that would only run or record the call.

    An operator that writes to an argument, or takes a list of tensors, is returned itself.

    Args:
        op: the operator of the dispatcher.
        run: as for `define`.
        backward: as for `define`.
        save: as for `define`.
    """
    arguments = op._schema.arguments  # noqa: SLF001 - torch has no public name for it
    kinds = [str(each.type) for each in arguments]
    places = [place for place, kind in enumerate(kinds) if "Tensor" in kind]
    # torch counts what is written to, and records lists of tensors in a way of its own
    writes = any(each.kwarg_only or each.alias_info is not None for each in arguments)
    if writes or any("List" in kinds[place] for place in places):
        return op  # type: ignore[no-any-return]
    apply = None if backward is None else _function(op.name(), run, backward, save).apply
    count = len(arguments)

    def call(*values: Any, **named: Any) -> Any:
        if not torch.compiler.is_compiling() and len(values) == count:
            tensors = [values[place] for place in places]
            if PLAIN(library.devices(), *tensors):
                return run(*values)
            if apply is not None and PLAIN_OR_RECORDED(library.devices(), *tensors):
                return apply(*values)
        return op(*values, **named)

    call.__name__ = call.__qualname__ = op.name().partition("::")[2]
    return call


def _function(
    name: str, run: Callable[..., Any], backward: Callable[..., Any], save: Callable[..., None] | None
) -> type[torch.autograd.Function]:
    """Return the node that autograd records for a call of an operator.

    Args:
        name: name of the operator.
        run: as for `define`.
        backward: as for `define`.
        save: as for `define`.
    """

    def forward(ctx: Any, *values: Any) -> Any:
        output = run(*values)
        if save is not None:
            save(ctx, values, output)
        return output

    own = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    return type(name.replace("::", "_"), (torch.autograd.Function,), own)


def dense(grad: Tensor) -> Tensor:
    """Return a gradient without strides of 0, as kernels of products want their operands; that of a sum has them."""
    return grad.contiguous() if 0 in grad.stride() else grad
