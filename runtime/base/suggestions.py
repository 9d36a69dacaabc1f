"""Ends of messages that suggest what somebody meant: the most similar of the known names."""

from __future__ import annotations

from nojit.runtime.base.wording import few

__all__ = ["did_you_mean", "nearest_or_few", "no_dtype"]


def did_you_mean(word: str, known: list[str] | tuple[str, ...]) -> str:
    """Return the end of a message that suggests the most similar of `known`; empty if none is similar."""
    import difflib

    near = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    return f"; did you mean {near[0]!r}?" if near else ""


_BYTES = "pass its bytes, tensor.view(torch.uint8), to a param of type '*u8'"
_OTHER_DTYPES = (
    (("float8_e8m0", "float4", "float6", "bits"), _BYTES),
    (("complex",), "pass its parts, torch.view_as_real(tensor)"),
    (("qint", "quint"), "pass its ints, tensor.int_repr()"),
)


def no_dtype(name: str, known: list[str] | tuple[str, ...]) -> str:
    """Return the message for a dtype that Triton lacks: the dtype to pass instead, or the most similar of `known`."""
    # without the framework's prefix
    bare = name.rpartition(".")[2]
    advice = next((f"; {what}" for starts, what in _OTHER_DTYPES if bare.startswith(starts)), "")
    return f"Triton has no dtype {name}{advice or did_you_mean(bare, known)}"


def nearest_or_few(word: str, known: tuple[str, ...]) -> str:
    """Return the end of a message that suggests the most similar of `known`; if none is, the first eight; empty without any."""
    there = f"; there {'is' if len(known) == 1 else 'are'} {few(known, 8)}" if known else ""
    return did_you_mean(word, known) or there
