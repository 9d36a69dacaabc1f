"""The argument ``return_aux`` of torch's ``flex_attention``, and its result; torch has them from 2.9 on."""

from __future__ import annotations

from nojit.kernels.calls.arguments import check_flags, refuse_type, refuse_value
from torch import Tensor
from torch.nn.attention.flex_attention import AuxOutput, AuxRequest

__all__ = ["AuxOutput", "AuxRequest", "check_request", "with_aux"]


def check_request(return_aux: object, return_lse: object) -> bool:
    """Return whether `return_aux` requests log-sums.

    Raises:
        ArgumentError: not an ``AuxRequest``.
        ValueError: `return_lse` is True as well.
        NotImplementedError: it requests the largest scores.
    """
    if not isinstance(return_aux, AuxRequest):
        refuse_type("return_aux", "an AuxRequest", type(return_aux).__name__)
    wants_lse, wants_scores = return_aux
    check_flags(return_lse=return_lse, **{"return_aux.lse": wants_lse, "return_aux.max_scores": wants_scores})
    if return_lse:
        refuse_value("return_lse", "False with return_aux (use AuxRequest(lse=True))", return_lse)
    if wants_scores:
        what = "return_aux.max_scores: expected False, as no kernel writes the largest score of a row"
        raise NotImplementedError(f"{what}, got True")
    return bool(wants_lse)


def with_aux(result: Tensor | tuple[Tensor, Tensor]) -> tuple[Tensor, AuxOutput]:
    """Return the output and torch's ``AuxOutput``, which has the log-sums if `result` has them."""
    out, lse = result if isinstance(result, tuple) else (result, None)
    return out, AuxOutput(lse=lse)
