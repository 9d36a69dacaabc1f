"""What a call returns beside its output, in torch's words: ``return_aux`` asks by an `AuxRequest`, an `AuxOutput` answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from nojit.kernels.arguments import check_flags, refuse_type, refuse_value
from torch import Tensor
from torch.nn.attention import flex_attention as torchs

__all__ = ["AuxOutput", "AuxRequest", "check_request", "with_aux"]


class _Request(NamedTuple):
    """torch's ``AuxRequest``, for a torch that has none: one before 2.9."""

    lse: bool = False
    max_scores: bool = False


class _Output(NamedTuple):
    """torch's ``AuxOutput``, likewise."""

    lse: Tensor | None = None
    max_scores: Tensor | None = None


if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import AuxOutput, AuxRequest
else:
    AuxRequest = getattr(torchs, "AuxRequest", _Request)
    AuxOutput = getattr(torchs, "AuxOutput", _Output)


def check_request(return_aux: object, return_lse: object) -> bool:
    """Say whether log-sums are asked for.

    Raises:
        ArgumentError: it is no request.
        ValueError: `return_lse` asks too, in another way.
        NotImplementedError: it asks for the largest scores.
    """
    if not isinstance(return_aux, AuxRequest):
        refuse_type("return_aux", "an AuxRequest", type(return_aux).__name__)
    wants_lse, wants_scores = return_aux
    check_flags(return_lse=return_lse, **{"return_aux.lse": wants_lse, "return_aux.max_scores": wants_scores})
    if return_lse:
        refuse_value("return_lse", "False beside return_aux (ask for AuxRequest(lse=True))", return_lse)
    if wants_scores:
        raise NotImplementedError(
            "return_aux.max_scores: expected False, as no kernel writes the largest score of a row, got True"
        )
    return bool(wants_lse)


def with_aux(result: Tensor | tuple[Tensor, Tensor]) -> tuple[Tensor, AuxOutput]:
    """Arrange the output, and log-sums if there are any, as torch does for a request."""
    out, lse = result if isinstance(result, tuple) else (result, None)
    return out, AuxOutput(lse=lse)
