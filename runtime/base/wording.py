"""Parts of messages: counts, lists of names, values, and the messages of other errors."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "counted",
    "few",
    "key_among",
    "shown",
    "told",
    "typed",
    "worded",
]


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
    import os

    # a call with a file descriptor has its number as a name
    name = error.filename
    return f"{error.strerror} - at {os.fsdecode(name) if isinstance(name, str | bytes) else name}"


def worded(error: Exception) -> str:
    """Return an error's message; for a failed system call without number and path, which the caller's message names."""
    if isinstance(error, UnicodeDecodeError):
        return f"byte 0x{error.object[error.start]:02x} at offset {error.start}, which is no UTF-8"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
