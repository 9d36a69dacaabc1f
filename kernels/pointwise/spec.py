"""Specs of pointwise operators: read from a TOML file or passed to `specify`, and validated."""

from __future__ import annotations

import keyword
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Final

from nojit.kernels.pointwise.derivatives import gradients
from nojit.kernels.pointwise.parser import check_name, parse, parse_gradients
from nojit.kernels.pointwise.program import Program
from nojit.runtime.base.suggestions import did_you_mean
from nojit.runtime.base.wording import key_among
from nojit.runtime.errors import ManifestError
from nojit.runtime.expr.operations import ExpressionError
from nojit.runtime.target import ARCHS, is_arch

__all__ = ["FLOATING", "INTEGRAL", "OperatorSpec", "SpecFile", "read_specs", "specify"]

FLOATING: Final = ("fp16", "bf16", "fp32", "fp64")
INTEGRAL: Final = ("i8", "i16", "i32", "i64")
_USUAL: Final = ("fp16", "bf16", "fp32")
_KINDS: Final = "rct"
# suffixes that nojit adds to an operator's name: an operator must not end with one
_ENDINGS: Final = ("_out", "_bwd", "_rectangles")
# constexprs of the kernels, which a choice must not shadow
_CONSTEXPRS: Final = ("kinds", "by", "bx", "block", "tiles", "stream", "exact")


@dataclass(frozen=True, slots=True)
class OperatorSpec:
    """One operator: its expressions, and the kernels to build for it."""

    name: str
    inputs: tuple[str, ...]
    scalars: tuple[str, ...]
    """Names of its numbers, which a call passes by name."""
    choice: str
    """Name of the argument that selects one of several programs; empty if there is one program."""
    programs: Mapping[str, Program]
    """Program for each value of the choice; the key is an empty string if there is one program."""
    texts: Mapping[str, str]
    """Expression for each value of the choice, as in `programs`."""
    derivatives: Mapping[str, Program]
    """Program of the gradients by all inputs, from ``grad`` and the needed inputs, for each value of the choice."""
    dtypes: tuple[str, ...]
    """Dtypes to build, by Triton's names."""
    gradient: bool
    """True if gradients have a kernel; if False, torch computes them."""
    kinds: tuple[str, ...]
    """Kinds of rectangles to build besides contiguous rows.

    A kind has a letter for each input, as in `kernel_parts.rectangle_pointers`.
    """
    index: tuple[str, ...]
    """Types of the flat kernel's number of elements, such as ``i64``."""
    core: str
    """Expression for the variants of the flat kernel that belong to the profile ``core``."""
    core_tiles: str
    """Expression for the variants of the rectangle kernel that belong to the profile ``core``."""
    tuned: bool
    """True if the flat kernel has a tuning space."""

    @property
    def words(self) -> tuple[str, ...]:
        """The values that the choice may have."""
        return tuple(self.programs) if self.choice else ()


@dataclass(frozen=True, slots=True)
class SpecFile:
    """The contents of a file of specs: a bundle table and operators."""

    bundle: Mapping[str, Any]
    """The table ``bundle`` of the manifest to generate."""
    operators: tuple[OperatorSpec, ...]


def specify(
    name: str,
    inputs: Sequence[str],
    expression: str | Mapping[str, str],
    *,
    scalars: Sequence[str] = (),
    choice: str = "",
    derivative: Mapping[str, str] | None = None,
    dtypes: Sequence[str] = _USUAL,
    gradient: bool = False,
    kinds: Sequence[str] = (),
    index: Sequence[str] = ("i64",),
    core: str = "false",
    core_tiles: str = "false",
    tuned: bool = False,
) -> OperatorSpec:
    """Return the spec of an operator; validate its values and parse its expressions.

    Args:
        name: the name of the operator and its kernels.
        inputs: the names of its tensors.
        expression: the formula; with `choice`, one for each value of the choice.
        scalars: the names of its numbers.
        choice: the argument that selects one of several expressions.
        derivative: the gradient by each input, over ``grad``, inputs and scalars; by default it is derived.
        dtypes: the dtypes to build, by Triton's names.
        gradient: whether to build a kernel for the gradients.
        kinds: kinds of rectangles to build besides contiguous rows, a letter for each input: for example "rc" for a row
            and a column.
        index: the types of the flat kernel's number of elements.
        core: expression for the variants of the flat kernel that belong to the profile ``core``.
        core_tiles: expression for the variants of the rectangle kernel that belong to the profile ``core``.
        tuned: whether the flat kernel has a tuning space.

    Raises:
        ValueError: an invalid value; `ExpressionError` for an expression.
    """
    check_name(name, "an operator", keyword.kwlist)
    if name.endswith(_ENDINGS):
        raise ValueError(f"expected a name for an operator that does not end in {', '.join(_ENDINGS)}, got {name!r}")
    if bool(choice) != isinstance(expression, Mapping):
        raise ValueError(
            f"expected operator {name} to have one expression, or a choice and a table with one expression per value"
        )
    texts = dict(expression) if isinstance(expression, Mapping) else {"": expression}
    for word in (choice, *(texts if choice else ())):
        if word:
            check_name(word, "a choice", _CONSTEXPRS)
    programs = {word: parse(text, inputs, scalars) for word, text in texts.items()}
    _check_dtypes(name, dtypes, programs, scalars)
    _check_kinds(kinds, len(inputs))
    if derivative is not None:
        if choice or derivative.keys() != set(inputs):
            raise ValueError(f"expected a derivative for each input of {name}, and no choice, got {sorted(derivative)}")
        slopes = {"": parse_gradients([derivative[each] for each in inputs], inputs, scalars)}
    else:
        slopes = {word: gradients(program) for word, program in programs.items()}
    if gradient and len({(slope.inputs, slope.scalars) for slope in slopes.values()}) > 1:
        raise ValueError(f"expected all choices of {name} to have gradients over the same inputs, for one kernel")
    return OperatorSpec(
        name, tuple(inputs), tuple(scalars), choice, programs, texts, slopes, tuple(dtypes), gradient,
        tuple(kinds), tuple(index), core, core_tiles, tuned,
    )  # fmt: skip


def _check_dtypes(name: str, dtypes: Sequence[str], programs: Mapping[str, Program], scalars: Sequence[str]) -> None:
    known = (*FLOATING, *INTEGRAL)
    for dtype in dtypes:
        if dtype not in known:
            raise ValueError(f"expected dtypes of {', '.join(known)}, got {dtype!r}{did_you_mean(str(dtype), known)}")
    if not dtypes or len(set(dtypes)) < len(dtypes):
        raise ValueError(f"expected dtypes of {name}, each once, got {list(dtypes)}")
    if any(program.floats for program in programs.values()) and set(dtypes) & set(INTEGRAL):
        raise ValueError(f"expected only float dtypes for {name}, as its results are floats, got {list(dtypes)}")
    if scalars and "fp64" in dtypes:
        raise ValueError(
            f"expected no fp64 for {name}, as kernels take scalars in fp32: remove 'fp64' from dtypes, or the scalars"
        )


def _check_kinds(kinds: Sequence[str], count: int) -> None:
    usual = {"".join(letters) for letters in product(_KINDS, repeat=count)} - {"r" * count}
    for kind in kinds:
        if kind not in usual or "r" not in kind:
            letters = "r (rows), c (repeated column) or t (transposed), at least one r and one other"
            raise ValueError(f"expected {count} letters in each of kinds, one per input: {letters}, got {kind!r}")


_KEYS: Final = (
    "name", "inputs", "expression", "scalars", "choice", "derivative", "dtypes", "gradient", "kinds", "index", "core",
    "core_tiles", "tuned",
)  # fmt: skip
_TYPES: Final[Mapping[str, type | tuple[type, ...]]] = {
    **dict.fromkeys(("inputs", "scalars", "dtypes", "kinds", "index"), list),
    **dict.fromkeys(("gradient", "tuned"), bool),
    "derivative": dict,
    "expression": (str, dict),
}
"""Types of the values that a spec may have, by key; all other values are text."""
_SPELLED: Final[Mapping[type | tuple[type, ...], str]] = {
    str: "text",
    list: "an array of text",
    bool: "true or false",
    dict: "a table of text",
    (str, dict): "text or a table of text",
}
"""The types as error messages name them."""
_INDICES: Final = ("i32", "i64")
_BUNDLE_KEYS: Final = ("name", "version", "archs")


def read_specs(path: Path) -> SpecFile:
    """Read and validate a file of specs.

    Raises:
        ManifestError: invalid TOML or an invalid value, with its location.
        OSError: the file cannot be read.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ManifestError(f"expected TOML: {error}", where=str(path)) from None
    _check_keys(content, ("schema", "bundle", "operator"), str(path))
    if content.get("schema") != 1 or not isinstance(content.get("bundle"), dict):
        raise ManifestError("expected schema = 1 and a table [bundle]", where=str(path))
    _check_bundle(content["bundle"], f"{path} $.bundle")
    entries = content.get("operator", [])
    if not isinstance(entries, list) or not entries:
        raise ManifestError("expected at least one table [[operator]]", where=str(path))
    operators = tuple(_read(entry, f"{path} $.operator[{place}]") for place, entry in enumerate(entries))
    kernels = [kernel for one in operators for kernel in (one.name, f"{one.name}_bwd")]
    if len(set(kernels)) < len(kernels):
        twice = next(kernel for kernel in kernels if kernels.count(kernel) > 1)
        raise ManifestError("expected operators with distinct names", got=f"{twice!r} twice", where=str(path))
    return SpecFile(content["bundle"], operators)


def _check_bundle(bundle: Any, where: str) -> None:
    """Require that the ``bundle`` table's values have the right types; the manifest's reader validates the names."""
    _check_keys(bundle, _BUNDLE_KEYS, where)
    for key in _BUNDLE_KEYS:
        if key not in bundle:
            raise ManifestError(f"expected the key {key}", got="none", where=where)
    for key in ("name", "version"):
        if not isinstance(bundle[key], str) or not bundle[key]:
            raise ManifestError("expected text", got=repr(bundle[key]), where=f"{where}.{key}")
    archs = bundle["archs"]
    if not isinstance(archs, list) or not archs:
        raise ManifestError("expected an array of archs", got=repr(archs), where=f"{where}.archs")
    for place, arch in enumerate(archs):
        if not is_arch(str(arch)):
            got = f"{arch!r}{did_you_mean(str(arch), ARCHS)}"
            raise ManifestError("expected an arch such as sm_90", got=got, where=f"{where}.archs[{place}]")


def _read(entry: Any, where: str) -> OperatorSpec:
    _check_keys(entry, _KEYS, where)
    for key, value in entry.items():
        words = value if isinstance(value, list) else value.values() if isinstance(value, dict) else ()
        kind = _TYPES.get(key, str)
        if not isinstance(value, kind) or not all(isinstance(word, str) for word in words):
            raise ManifestError(f"expected {_SPELLED[kind]} for {key}", got=repr(value), where=where)
    if not entry.get("index", _INDICES) or not set(entry.get("index", ())) <= set(_INDICES):
        raise ManifestError(
            'expected ["i32"], ["i64"] or ["i32", "i64"] for index', got=repr(entry["index"]), where=where
        )
    missing = [key for key in _KEYS[:3] if key not in entry]
    if missing:
        raise ManifestError(f"expected the keys {', '.join(missing)}", got="none", where=where)
    try:
        return specify(**entry)
    except (ExpressionError, ValueError) as error:
        raise ManifestError(str(error), where=where) from error


def _check_keys(table: Any, keys: Sequence[str], where: str) -> None:
    if not isinstance(table, dict):
        raise ManifestError("expected a table", got=repr(table), where=where)
    for key in table:
        if key not in keys:
            raise ManifestError(
                f"expected {key_among(keys)}", got=f"{key!r}{did_you_mean(key, tuple(keys))}", where=where
            )
