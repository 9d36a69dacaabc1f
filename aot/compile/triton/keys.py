"""Cache keys of variants: digests of everything that determines their machine code."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import triton
from nojit.aot.compile.toolchain.digests import file_digest
from nojit.aot.compile.triton.ast_source import ast_source
from nojit.aot.compile.triton.failures import Lines
from nojit.aot.compile.triton.functions import find, referred
from nojit.aot.compile.triton.own_toolchain import backend_of, toolchain, triton_backend
from nojit.aot.compile.triton.simulated_gpu import dedicated, simulate
from nojit.aot.compile.triton.source_digest import lines_of, source_digest
from nojit.aot.manifest.archs import target_of
from nojit.aot.manifest.options import OPTIONS
from nojit.aot.plan.function_facts import KernelSource, SourcePlace
from nojit.aot.variants.variant import Variant, functions_of
from nojit.runtime.base.strict_json import Json, canonical_json
from nojit.runtime.base.wording import worded
from nojit.runtime.errors import ManifestError
from nojit.runtime.values import Value, encode_value
from triton.runtime.jit import JITFunction

__all__ = ["compiling_starts", "given", "reached_lines", "resolved", "variant_key", "variant_keys"]

# part of every key: raise it when this module compiles the same inputs differently
_KEY_VERSION = 4

_patches: list[str] = []
"""One digest of the source's patches to Triton (empty if there are none); the list is empty until it is computed."""
_compiles: list[bool] = []
"""Marker: not empty as soon as this process has compiled a variant."""


def compiling_starts() -> None:
    """Note that this process compiles, after which Triton changes state of its own modules."""
    _compiles.append(True)


def variant_key(variant: Variant, source: KernelSource, place: SourcePlace) -> str:
    """Return the cache key of a variant: a SHA-256 in hex over everything that determines its machine code.

    `place`: where the kernel's source is.

    Raises:
        ManifestError: a function that the variant takes as a constexpr does not exist, or this Triton refuses its
            options.
    """
    values = [referred(each, place) for _, each in functions_of(variant)]
    # a member of an enum counts with its value
    functions: list[Json] = [
        source_digest(each) if isinstance(each, JITFunction) else ["member", repr(each)] for each in values
    ]
    if (symbol := _chosen_symbol(variant, place)) is not None:
        functions.append(["symbol", symbol])
    key = _plain_key(variant, source, place, functions)
    if not variant.line_info:
        return key
    lines = sorted(reached_lines(variant, place))
    return hashlib.sha256(f"{key} with line info of {lines}".encode()).hexdigest()


def _given_functions(variant: Variant, place: SourcePlace) -> list[JITFunction[Any]]:
    """Return the functions that a variant takes as constexprs.

    `place`: where the kernel's source is.
    """
    given = (referred(each, place) for _, each in functions_of(variant))
    return [each for each in given if isinstance(each, JITFunction)]


def reached_lines(variant: Variant, place: SourcePlace) -> frozenset[Lines]:
    """Return the position (file, first line, number of lines) of each function that is compiled into a variant.

    `place`: where the kernel's source is.
    """
    return frozenset().union(*map(lines_of, (find(place), *_given_functions(variant, place))))


def _chosen_symbol(variant: Variant, place: SourcePlace) -> str | None:
    """Return the symbol name that the `repr` function of ``@triton.jit`` gives a variant; None without `repr`.

    The digest of the kernel's source does not cover the `repr` function, so the variant's key includes its result.

    `place`: where the kernel's source is.
    """
    function = find(place)
    if function._repr is None:  # noqa: SLF001 - no public attribute has it
        return None
    source = ast_source(variant, place)
    constants = {function.arg_names[path[0]]: value for path, value in source.constants.items() if len(path) == 1}
    try:
        return str(function.repr(_Specialization(constants, source.signature)))
    except Exception as error:
        raise ManifestError(
            f"expected `repr` of {function.__name__}'s decorator to name the variant",
            got=f"{type(error).__name__}: {error}",
            where=f"{place.where}: {variant.label()}",
        ) from error


class _Specialization(NamedTuple):
    """The argument that Triton passes to the `repr` function of ``@triton.jit``."""

    constants: dict[str, Any]
    signature: dict[str, Any]


def variant_keys(variants: Sequence[Variant], source: KernelSource, place: SourcePlace) -> tuple[str, ...]:
    """Return the cache key of each variant; it also covers patches that the source's import made to Triton.

    `place`: where the kernel's source is.

    Raises:
        ManifestError: a function that a variant takes as a constexpr does not exist, or this Triton refuses its
            options.
    """
    simulate(variants[0].arch)
    keys = tuple(variant_key(variant, source, place) for variant in variants)
    # taken before the first compilation, when Triton itself starts to change state of its modules
    if (state := dedicated()) and not _compiles:
        _patches[:] = [state.baseline.digest()]
    patches = "".join(_patches)
    return tuple(hashlib.sha256(f"{key} {patches}".encode()).hexdigest() for key in keys) if patches else keys


def _plain_key(variant: Variant, source: KernelSource, place: SourcePlace, functions: list[Json]) -> str:
    return hashlib.sha256(
        canonical_json(
            [
                _KEY_VERSION,
                source.digest,
                source.name,
                [[param, kind] for param, kind in variant.signature],
                [[param, encode_value(value)] for param, value in sorted(variant.constexprs, key=lambda pair: pair[0])],
                [[param, hint] for param, hint in variant.hints],
                functions,
                _checked_environment(variant, place),
            ]
        )
    ).hexdigest()


def _checked_environment(variant: Variant, place: SourcePlace) -> str:
    where = f"{place.where}: {variant.label()}"
    known = {*backend_of(variant.arch).OPTIONS, *backend_of(variant.arch).IGNORED}
    for name, value in variant.options:
        if name not in known and value != OPTIONS[name].default:
            what = f"expected options of Triton {triton.__version__}"
            raise ManifestError(what, got=f"{name} = {value!r}", where=where)
    try:
        options = resolved(variant.options, place)
        given: Any = dict(options).get("extern_libs") or ()
        libraries = tuple((library, file_digest(path)) for library, path in given)
        # not cached: a build for an older driver in this process uses other tools
        return _environment(variant.arch, options, toolchain(variant.arch), libraries)
    except OSError as error:
        got = f"{error.filename}: {worded(error)}" if error.filename else worded(error)
        raise ManifestError("expected readable files in extern_libs", got=got, where=where) from None
    except ValueError as error:
        raise ManifestError(
            "expected options that Triton takes", got=" ".join(str(error).split()), where=where
        ) from None


@lru_cache(maxsize=4096)
def _environment(
    arch: str,
    options: tuple[tuple[str, Value], ...],
    tools: tuple[tuple[str, str], ...],
    libraries: tuple[tuple[str, str], ...],
) -> str:
    """Return a digest of everything but the source: options with Triton's defaults, target, toolchain, libraries."""
    spelled = dataclasses.asdict(triton_backend(arch).parse_options(given(options, arch)))
    # paths, also of Triton's own libraries: the toolchain and `libraries` cover their content
    del spelled["extern_libs"]
    text = repr((sorted(spelled.items()), target_of(arch), tools, libraries))
    return hashlib.sha256(text.encode()).hexdigest()


def resolved(options: tuple[tuple[str, Value], ...], place: SourcePlace) -> tuple[tuple[str, Value], ...]:
    """Return compiler options; relative paths in `extern_libs` are resolved against the manifest's folder.

    `place`: where the kernel's source is.
    """
    given: dict[str, Any] = dict(options)
    if libraries := given.get("extern_libs"):
        given["extern_libs"] = tuple((library, str(place.folder / path)) for library, path in libraries)
    return tuple(given.items())


def given(options: tuple[tuple[str, Value], ...], arch: str) -> dict[str, Any]:
    """Return the options to pass to Triton: the vendor's defaults for unset ones, without None."""
    own = backend_of(arch).DEFAULTS
    given = {name: own[name] if name in own and value == OPTIONS[name].default else value for name, value in options}
    return {name: value for name, value in given.items() if value is not None}
