"""Parts of messages: counts, lists of names, suggestions, values, and the messages of other errors."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "counted",
    "did_you_mean",
    "few",
    "key_among",
    "nearest_or_few",
    "no_dtype",
    "shown",
    "told",
    "typed",
    "worded",
]


def did_you_mean(word: str, known: list[str] | tuple[str, ...]) -> str:
    """Return the end of a message that suggests the most similar of `known`; empty if none is similar."""
    import difflib  # noqa: PLC0415 - only an error pays for it

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


def counted(number: int, noun: str) -> str:
    """Return a count as text: ``1 variant``, ``1,204 variants``."""
    return f"{number:,} {noun if number == 1 else noun + 's'}"


def few(names: Sequence[str], most: int) -> str:
    """Return names as text: the first `most`, and how many follow."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def key_among(keys: Sequence[str]) -> str:
    """Return the keys that a table may have as text: ``one of the keys name, source``, or ``the key when``."""
    return f"{'the key' if len(keys) == 1 else 'one of the keys'} {', '.join(keys)}"


def shown(value: object) -> str:
    """Return a value as text for a message; only its type if Python cannot print it, such as an int of more than 4,300 digits."""
    try:
        return repr(value)
    except ValueError:
        return type(value).__name__


def typed(value: object) -> str:
    """Return a value as text with its type, ``int 3``, as `shown` does."""
    text, name = shown(value), type(value).__name__
    return name if text == name else f"{name} {text}"


def told(error: Exception) -> str:
    """Return an error's message; for a failed system call without the error number, but with the file."""
    if not isinstance(error, OSError) or not error.strerror or error.filename is None:
        return worded(error)
    import os  # noqa: PLC0415 - as above

    # a call with a file descriptor has its number as a name
    name = error.filename
    return f"{error.strerror} - at {os.fsdecode(name) if isinstance(name, str | bytes) else name}"


def worded(error: Exception) -> str:
    """Return an error's message; for a failed system call without number and path, which the caller's message names."""
    if isinstance(error, UnicodeDecodeError):
        return f"byte 0x{error.object[error.start]:02x} at offset {error.start}, which is no UTF-8"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
