"""TOML of manifests: keys, texts and values, for the commands that write manifests."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from nojit.runtime.values import DType, FunctionRef, Value

__all__ = ["flat", "toml_key", "toml_text", "toml_texts", "toml_value"]


def toml_value(value: Value) -> str:
    """Return a constexpr's or option's value as a manifest spells it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return toml_text(value)
    if isinstance(value, tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    if isinstance(value, DType | FunctionRef):
        return f"{{ {'dtype' if isinstance(value, DType) else 'function'} = {toml_text(value.name)} }}"
    return "{ none = true }" if value is None else repr(value)


def toml_key(name: str) -> str:
    """Return a key, quoted if needed."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else toml_text(name)


def toml_text(text: str) -> str:
    """Return a text in quotes, in one line."""
    return json.dumps(flat(text)).replace("\x7f", "\\u007f")


def toml_texts(texts: Sequence[str]) -> str:
    """Return an array of texts."""
    return f"[{', '.join(map(toml_text, texts))}]"


def flat(text: str) -> str:
    """Return a text in one line, with single spaces."""
    return " ".join(text.split())
