"""The build's access to Triton: find a kernel's source, list its dependencies, compile one variant.

Of aot and runtime, only this module and the backends of vendors import triton. This module neither needs nor queries a
GPU: kernels that ask Triton for the current target get the target of the build. Supports Triton 3.6 to 3.9.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import inspect
import io
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple

import triton
from nojit.aot.backends.interface import Backend, StandIn
from nojit.aot.backends.registry import vendor_of, vendors
from nojit.aot.compile.images import check_compiled, checked_registers
from nojit.aot.compile.sources import reads, source_import
from nojit.aot.compile.sources.captured import Captured
from nojit.aot.compile.sources.decorators import read_decorators
from nojit.aot.compile.sources.outline_reader import read_configs, read_heuristics, read_optional, read_uses
from nojit.aot.compile.sources.source_import import import_source, recorded_closure
from nojit.aot.compile.toolchain.digests import file_digest, tree_digest
from nojit.aot.compile.toolchain.installed_triton import check_unnamed
from nojit.aot.compile.toolchain.triton_settings import read_settings, settings_words
from nojit.aot.compile.triton import closures
from nojit.aot.compile.triton.failures import Lines, account_of
from nojit.aot.compile.triton.param_layout import (
    Leaf,
    Place,
    layout_of,
    leaves_of,
    nested,
    passed_of,
    place_in,
    tensor_maps_of,
)
from nojit.aot.compile.triton.patches import Baseline
from nojit.aot.manifest.archs import target_of
from nojit.aot.manifest.function_names import find_named
from nojit.aot.manifest.options import OPTIONS
from nojit.aot.manifest.types import NONE, layout_in, plain
from nojit.aot.plan.outline import Outline
from nojit.aot.plan.source import HEURISTICS, KernelSource, SourcePlace
from nojit.aot.plan.variant import CompiledVariant, Variant, functions_of
from nojit.runtime.errors import CompileError, ManifestError, worded
from nojit.runtime.recording.closure import capture, digest_of
from nojit.runtime.strict import Json, canonical_json
from nojit.runtime.table.constant_types import constant_of, is_constant
from nojit.runtime.table.table import MISSING, Launch, Param
from nojit.runtime.table.type_names import descriptor_parts, dtype_name, is_descriptor
from nojit.runtime.values import LAYOUTS, DType, FunctionRef, Value, encode_value
from triton import knobs
from triton._C.libtriton import get_cache_invalidating_env_vars, getenv
from triton.backends import backends
from triton.compiler import ASTSource, make_backend
from triton.experimental.gluon._runtime import GluonASTSource
from triton.language.core import constexpr, dtype
from triton.runtime.driver import driver as active_driver
from triton.runtime.jit import DependenciesFinder, JITCallable, JITFunction
from triton.tools.tensor_descriptor import TensorDescriptor

__all__ = [
    "archs",
    "ast_source",
    "begin",
    "captured",
    "check_compiled",
    "compile_variant",
    "describe",
    "gpu_target",
    "min_driver",
    "of",
    "prepare",
    "toolchain",
    "toolchains",
    "variant_key",
    "variant_keys",
    "warm_up",
]

# before 3.9, Triton passes the shape of a padded 4-bit descriptor in values instead of the caller's units
_DOUBLES_SHAPES = tuple(map(int, triton.__version__.split(".")[:2])) < (3, 9)

# part of every key: raise it when this module compiles the same inputs differently
_KEY_VERSION = 4


# -- toolchain -------------------------------------------------------------------------------------------------------


toolchains: Final[tuple[str, ...]] = ()
"""No names: `nojit.aot.compile.by_toolchain` names toolchains."""


def of(names: Sequence[str]) -> Any:
    """Return this module, as the compiler of the only toolchain.

    Raises:
        ManifestError: `names` is not empty.
    """
    check_unnamed(names)
    return sys.modules[__name__]


def toolchain(arch: str) -> tuple[tuple[str, str], ...]:
    """Return the inputs of every image for `arch`: versions and digests of the tools, and the settings that are set.

    Raises:
        CompileError: a setting has a value that builds refuse, or a tool cannot be read.
    """
    try:
        tools = {"triton": triton.__version__, "triton.digest": _triton_digest(_backend_of(arch).folder())}
        for name, tool in _backend_of(arch).tools(arch).items():
            tools |= {name: tool.version, f"{name}.digest": file_digest(tool.path)}
    except OSError as error:
        where = str(error.filename or "")
        raise CompileError("expected a toolchain that can be read", got=worded(error), where=where) from None
    settings = settings_words(_settings())
    if settings:
        tools["settings"] = settings
    return tuple(sorted(tools.items()))


def min_driver(arch: str) -> int:
    """Return the oldest CUDA version whose driver loads images for `arch` (13000 for 13.0)."""
    return _backend_of(arch).min_driver(arch)


def archs() -> tuple[str, ...]:
    """Return the archs that this toolchain can build; empty if a tool does not list its targets."""
    return tuple(arch for vendor in vendors() for arch in vendor.backend().archs())


@lru_cache(maxsize=64)
def _backend_of(arch: str) -> Backend:
    """Return the vendor's module that compiles for an arch."""
    return vendor_of(arch).backend()


def _triton_digest(backend: Path) -> str:
    """Return the digest of the files of the installed Triton, and of a backend's folder elsewhere; computed once per process."""
    # another distribution can provide a backend
    own = any(map(backend.is_relative_to, [Path(folder).resolve() for folder in triton.__path__]))
    return _digest_of((*triton.__path__, *([] if own else [str(backend)])))


@lru_cache(maxsize=8)
def _digest_of(folders: tuple[str, ...]) -> str:
    return tree_digest([*folders])


def _settings() -> tuple[tuple[str, str], ...]:
    """Return the settings of Triton that are set and can change generated code, with their values.

    Raises:
        CompileError: a setting has a value that builds refuse.
    """
    hooks = [each for each in (vendor.backend().instrumentation() for vendor in vendors()) if each]
    if hooks:
        raise CompileError(
            "expected kernels without instrumentation, such as that of triton.profiler", got=str(hooks[0])
        )
    return read_settings(knobs, getenv, get_cache_invalidating_env_vars())


# -- sources ---------------------------------------------------------------------------------------------------------


_patches: list[str] = []
"""One digest of the source's patches to Triton (empty if there are none); the list is empty until it is computed."""
_compiles: list[bool] = []
"""Marker: not empty as soon as this process has compiled a variant."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Begun:
    """State of a process that is dedicated to one kernel source."""

    device: StandIn
    driver: Any
    baseline: Baseline


_begun: list[_Begun] = []


def _simulate(arch: str) -> None:
    """Make the simulated GPU, if this process has one, the chip of an arch; empty for the one that it is."""
    for begun in _begun if arch else ():
        begun.device.arch = vendor_of(arch).chip_of(arch)


def begin(place: SourcePlace, arch: str) -> None:
    """Dedicate this process to one kernel source, which then sees the target as its GPU. Call before importing it.

    Args:
        place: where the source is.
        arch: the first arch to simulate. Later calls pass their own arch.
    """
    source_import.begin(place)
    vendor = vendor_of(arch)
    device, driver = vendor.backend().begin(arch)
    for name, backend in backends.items():
        backend.driver.is_active = staticmethod(lambda active=name == vendor.TRITON: active)
    vars(sys.modules["triton.runtime.driver"])["_create_driver"] = lambda: driver
    active_driver.set_active(driver)
    _begun.append(_Begun(device, driver, Baseline()))
    reads.source_begins()


def prepare(asked: Iterable[tuple[SourcePlace, str]]) -> None:
    """Do nothing, since this compiler imports each source when it is needed; part of the planner's interface.

    `asked`: the sources, each with an arch.
    """


def describe(place: SourcePlace, arch: str = "") -> KernelSource:
    """Return the params, dependencies and digest of a kernel function.

    Args:
        place: where the function is.
        arch: the target. After `begin`, the source sees a GPU of this arch; without `begin` it sees the machine's own GPU.

    Raises:
        ManifestError: the module, file or function does not exist, or the function is not ``@triton.jit``.
        CompileError: a setting of Triton has a value that builds refuse.
    """
    _simulate(arch)
    # before the import: under TRITON_INTERPRET the decorator makes functions of another class
    _settings()
    _named(place)
    settings = _settings()
    function = _find(place)
    try:
        digest = _source_digest(function)
    except Exception as error:
        # Triton's walk refuses what its compiler would refuse, for example a call of a plain Python function
        raise ManifestError(
            "expected a function that Triton can read", got=f"{type(error).__name__}: {error}", where=place.where
        ) from error
    if any(param.is_constexpr and _default(param) == () for param in function.params):
        raise ManifestError(
            "expected *args without tl.constexpr: remove the annotation", got=function.__name__, where=place.where
        )
    around = read_decorators(_named(place), function, TensorDescriptor)
    return KernelSource(
        name=function.__name__,
        params=tuple(Param(param.name, param.is_constexpr, _default(param)) for param in function.params),
        unspecialized=frozenset(param.name for param in function.params if param.do_not_specialize),
        unaligned=frozenset(param.name for param in function.params if param.do_not_specialize_on_alignment),
        digest=digest,
        gluon=function.is_gluon(),
        annotations=tuple(
            (param.name, param.annotation_type)
            for param in function.params
            if param.annotation_type and not param.is_constexpr
        ),
        constants=frozenset(param.name for param in function.params if param.is_const),
        debug=bool(function.debug),
        settings=settings,
        effects=around.effects,
        computed=around.computed,
        hooks=around.hooks,
        answers=tuple(answer for begun in _begun for answer in begun.device.answers()),
        of_arch=any(begun.device.by_arch for begun in _begun),
        of_device=tuple(answer for begun in _begun for answer in begun.device.answers(begun.device.by_device)),
        reached=tuple(module for begun in _begun for module in begun.baseline.news()),
    )


def outline(place: SourcePlace, arch: str) -> Outline:
    """Return what the source of a kernel function tells about how it is called.

    Args:
        place: where the function is.
        arch: the target.

    Raises:
        ManifestError: as `describe`.
    """
    source, function = describe(place, arch), _find(place)
    configs, key, prune = read_configs(_named(place), function)
    runtime = [param.name for param in source.params if not param.constexpr]
    computed = [name for name, by in source.computed if by == HEURISTICS]
    uses, heuristics = read_uses(runtime, key, function), read_heuristics(computed, function)
    return Outline(source, uses, read_optional(runtime, function), configs, key, prune, heuristics)


def captured(place: SourcePlace, arch: str, names: Sequence[str]) -> Captured:
    """Return the source closures with which another machine compiles a kernel's variants.

    Args:
        place: where the kernel's source is.
        arch: the target.
        names: functions that the variants take as constexprs, as `FunctionRef` spells them.

    Raises:
        ManifestError: as `describe`, or the text of a function cannot be read.
    """
    _simulate(arch)
    places = {name: _function_place(FunctionRef(name), place) for name in _captured_names(names, place)}
    found: dict[str, bytes] = {}
    files: dict[str, str] = {}
    digests: dict[str, str] = {}
    for name, each in {"": place, **places}.items():
        try:
            closure = recorded_closure(each) if each.recorded else capture(_find(each))
        except OSError as error:
            raise ManifestError("expected a source that can be read", got=worded(error), where=place.where) from None
        digests[name] = digest_of(closure)
        found[digests[name]] = canonical_json(closure)
        for definition in () if each.recorded else closure["definitions"]:
            file = getattr(sys.modules.get(definition["module"]), "__file__", None)
            if file:
                files[closures.file_name(definition)] = file
    kernel = digests.pop("")
    return Captured(kernel, tuple(sorted(digests.items())), tuple(sorted(found.items())), tuple(sorted(files.items())))


def _captured_names(names: Sequence[str], place: SourcePlace) -> list[str]:
    """Return the names whose closures a kernel needs; members of recorded enums are in its own.

    `place`: where the kernel's source is.
    """
    return [name for name in names if not place.recorded or name in dict(place.functions)]


def _default(param: Any) -> Any:
    if param._param.kind is inspect.Parameter.VAR_POSITIONAL:  # noqa: SLF001 - no public attribute has it
        # bundles store `*args` as a param with the default `()`
        return ()
    if not param.has_default:
        return MISSING
    default = param.default
    value = default.value if isinstance(default, constexpr) else default
    if value is None or isinstance(value, bool):
        return value
    # Triton compares a member of an enum by its value
    for kind, plainly in ((str, str.__str__), (int, int), (float, float)):
        if isinstance(value, kind):
            return plainly(value)
    # bundles cannot store other defaults, so such a param counts as required
    return MISSING


def _imported(place: SourcePlace) -> ModuleType:
    try:
        return import_source(place)
    except ManifestError as error:
        error.got += _target_answers()
        raise


# unbounded: the digests are keyed by id(), and this cache keeps the functions alive
@cache
def _named(place: SourcePlace) -> Any:
    """Return the object that a manifest entry names: a function, with its decorators around it.

    `place`: where the kernel's source is.
    """
    if place.recorded:
        return _rebuilt(place).functions()[0]
    module = _imported(place)
    try:
        return find_named(module, place.spelling, place.where)
    except ManifestError as error:
        error.got += _target_answers()
        raise


@cache
def _rebuilt(place: SourcePlace) -> closures.Rebuilt:
    """Return the definitions of a recorded source closure, made again.

    `place`: where the kernel's source is.
    """
    return closures.Rebuilt(recorded_closure(place), place.where)


@cache
def _find(place: SourcePlace) -> JITFunction[Any]:
    named = found = _named(place)
    # autotuners and heuristics wrap the function that they decorate
    while not isinstance(found, JITFunction) and hasattr(found, "fn"):
        found = found.fn
    if not isinstance(found, JITFunction):
        got = f"{type(named).__name__} {place.spelling}{_target_answers()}"
        raise ManifestError("expected a @triton.jit function", got=got, where=place.where)
    return found


def _target_answers() -> str:
    """Return the queries about the GPU that the import made, as text for an error: they can explain a missing name."""
    answers = [answer for begun in _begun for answer in begun.device.answers()]
    return f"; its import queried the target: {', '.join(answers)}" if answers else ""


_CONSTANTS = constexpr | dtype | bool | int | float | str | tuple


def _spelled(value: object) -> str | None:
    """Return the text of a constant, or of a container of constants, to put into a digest; None for any other value."""
    if isinstance(value, _CONSTANTS):
        return repr(value)
    if isinstance(value, dict):
        parts = [part for pair in value.items() for part in pair]
    elif isinstance(value, list | set | frozenset):
        parts = [*value]
    else:
        return None
    spelled = ["None" if part is None else _spelled(part) for part in parts]
    known = [each for each in spelled if each is not None]
    if len(known) < len(spelled):
        return None
    return f"{type(value).__name__}{sorted(known) if isinstance(value, set | frozenset) else known}"


class _Dependencies(DependenciesFinder):  # type: ignore[misc]
    """Triton's traversal of a function's dependencies; it hashes each function with `_source_digest`."""

    def __init__(self, **walk: Any) -> None:
        super().__init__(**walk)
        self.lines: frozenset[Lines] = frozenset()

    def _update_hash(self, func: JITCallable) -> None:
        # the symbol of a noinline function contains the name of its module
        module = func.__module__ if getattr(func, "noinline", False) else None
        self.hasher.update(f"{_source_digest(func)}{module}".encode())
        self.used_global_vals.update(_reached_globals(func))
        self.lines |= _lines.get(id(func), frozenset())

    def record_reference(self, val: Any, var_dict: dict[str, Any] | None = None, name: str | None = None) -> None:
        super().record_reference(val, var_dict, name)
        # Triton's walk omits constants of other modules and the values of defaults
        spelled = _spelled(val)
        if spelled is not None and (var_dict is None or self.visiting_arg_default_value):
            self.hasher.update(spelled.encode())


_digests: dict[int, str] = {}
_globals: dict[int, dict[Any, Any]] = {}
_lines: dict[int, frozenset[Lines]] = {}


def _source_digest(function: JITCallable) -> str:
    """Return a digest of a function's source, of every jit function that it reaches, and of the constants it reads.

    It does not depend on line numbers. Triton's ``cache_key`` includes the line of the ``def``, so that one more line
    in a helper would change the key of every kernel below it in the file.
    """
    known = _digests.get(id(function))
    if known is not None:
        return known
    # ends the walk where a recursive function reaches itself
    _digests[id(function)] = f"recursion:{function.__qualname__}"
    finder = _Dependencies(
        name=function.__qualname__,
        globals=function.__globals__,
        nonlocals=inspect.getclosurevars(function.fn).nonlocals,
        src=function.src,
    )
    finder.visit(function.parse())
    _globals[id(function)] = finder.used_global_vals
    own = (function.fn.__code__.co_filename, function.starting_line_number, len(function.raw_src))
    _lines[id(function)] = finder.lines | {own}
    # a set: functions of one module share their globals, those that a closure rebuilt have globals of their own
    constants = sorted(
        {
            (name, spelled)
            for (name, _), (value, _) in finder.used_global_vals.items()
            if (spelled := _spelled(value)) is not None
        }
    )
    digest = hashlib.sha256(f"{finder.ret}{constants}".encode()).hexdigest()
    _digests[id(function)] = digest
    return digest


def _reached_globals(function: JITCallable) -> dict[Any, Any]:
    return _globals.get(id(function), {})


# -- keys ------------------------------------------------------------------------------------------------------------


def variant_key(variant: Variant, source: KernelSource, place: SourcePlace) -> str:
    """Return the cache key of a variant: a SHA-256 in hex over everything that determines its machine code.

    `place`: where the kernel's source is.

    Raises:
        ManifestError: a function that the variant takes as a constexpr does not exist, or this Triton refuses its
            options.
    """
    given = [_referred(each, place) for _, each in functions_of(variant)]
    # a member of an enum counts with its value
    functions: list[Json] = [
        _source_digest(each) if isinstance(each, JITFunction) else ["member", repr(each)] for each in given
    ]
    if (symbol := _chosen_symbol(variant, place)) is not None:
        functions.append(["symbol", symbol])
    key = _plain_key(variant, source, place, functions)
    if not variant.line_info:
        return key
    lines = sorted(_reached_lines(variant, place))
    return hashlib.sha256(f"{key} with line info of {lines}".encode()).hexdigest()


def _given_functions(variant: Variant, place: SourcePlace) -> list[JITFunction[Any]]:
    """Return the functions that a variant takes as constexprs.

    `place`: where the kernel's source is.
    """
    given = (_referred(each, place) for _, each in functions_of(variant))
    return [each for each in given if isinstance(each, JITFunction)]


def _reached_lines(variant: Variant, place: SourcePlace) -> frozenset[Lines]:
    """Return the position (file, first line, number of lines) of each function that is compiled into a variant.

    `place`: where the kernel's source is.
    """
    functions = [_find(place), *_given_functions(variant, place)]
    for function in functions:
        # fills `_lines`
        _source_digest(function)
    return frozenset().union(*(_lines[id(function)] for function in functions))


def _chosen_symbol(variant: Variant, place: SourcePlace) -> str | None:
    """Return the symbol name that the `repr` function of ``@triton.jit`` gives a variant; None without `repr`.

    The digest of the kernel's source does not cover the `repr` function, so the variant's key includes its result.

    `place`: where the kernel's source is.
    """
    function = _find(place)
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
    _simulate(variants[0].arch)
    keys = tuple(variant_key(variant, source, place) for variant in variants)
    # taken before the first compilation, when Triton itself starts to change state of its modules
    if _begun and not _compiles:
        _patches[:] = [_begun[-1].baseline.digest()]
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
    known = {*_backend_of(variant.arch).OPTIONS, *_backend_of(variant.arch).IGNORED}
    for name, value in variant.options:
        if name not in known and value != OPTIONS[name].default:
            what = f"expected options of Triton {triton.__version__}"
            raise ManifestError(what, got=f"{name} = {value!r}", where=where)
    try:
        options = _resolved(variant.options, place)
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
    spelled = dataclasses.asdict(_backend(arch).parse_options(_given(options, arch)))
    # paths, also of Triton's own libraries: the toolchain and `libraries` cover their content
    del spelled["extern_libs"]
    text = repr((sorted(spelled.items()), target_of(arch), tools, libraries))
    return hashlib.sha256(text.encode()).hexdigest()


def _resolved(options: tuple[tuple[str, Value], ...], place: SourcePlace) -> tuple[tuple[str, Value], ...]:
    """Return compiler options; relative paths in `extern_libs` are resolved against the manifest's folder.

    `place`: where the kernel's source is.
    """
    given: dict[str, Any] = dict(options)
    if libraries := given.get("extern_libs"):
        given["extern_libs"] = tuple((library, str(place.folder / path)) for library, path in libraries)
    return tuple(given.items())


def _given(options: tuple[tuple[str, Value], ...], arch: str) -> dict[str, Any]:
    own = _backend_of(arch).DEFAULTS
    given = {name: own[name] if name in own and value == OPTIONS[name].default else value for name, value in options}
    return {name: value for name, value in given.items() if value is not None}


@lru_cache(maxsize=64)
def _backend(arch: str) -> Any:
    return make_backend(gpu_target(arch))


def gpu_target(arch: str) -> Any:
    """Return Triton's target object for an arch."""
    return _backend_of(arch).target(arch)


# -- compile ---------------------------------------------------------------------------------------------------------


def compile_variant(variant: Variant, place: SourcePlace) -> CompiledVariant:
    """Compile one variant to machine code.

    `place`: where the kernel's source is.

    Raises:
        CompileError: Triton or its assembler failed; the attribute ``log`` of the error holds their output.
    """
    reads.stop()
    started = time.monotonic()
    where = f"{place.where}: {variant.label()}"
    # computed here, from the sources and the toolchain that this process compiles with
    (key,) = variant_keys((variant,), describe(place), place)
    _compiles.append(True)
    function, vendor = _find(place), _backend_of(variant.arch)
    log = io.StringIO()
    try:
        source = ast_source(variant, place)
        with (
            _quiet_triton(log, vendor, line_info=variant.line_info),
            _current_target(variant.arch),
            vendor.assembling(variant.arch),
        ):
            compiled = triton.compile(
                source,
                target=gpu_target(variant.arch),
                options=_given(_resolved(variant.options, place), variant.arch),
            )
            image = bytes(compiled.asm[vendor_of(variant.arch).IMAGE])
    except Exception as error:
        account = account_of(error, _reached_lines(variant, place))
        place_in_source = f"{account.where}, {where}" if account.where else where
        log_text = f"{account.log}\n{log.getvalue()}"
        raise CompileError("expected to compile", got=account.what, where=place_in_source, log=log_text) from error
    passed = passed_of([param.name for param in function.params], variant)
    launch = _launch(compiled.metadata, passed, variant.arch, where)
    return CompiledVariant(
        image=image,
        launch=launch,
        registers=checked_registers(image, launch, variant.arch, where),
        spill_bytes=vendor.spill_bytes(log.getvalue(), image),
        compile_ms=round((time.monotonic() - started) * 1000),
        key=key,
    )


def ast_source(variant: Variant, place: SourcePlace) -> ASTSource:
    """Return a variant as the source object that Triton compiles: function, types, constants, hints.

    `place`: where the kernel's source is.
    """
    function = _find(place)
    order = [param.name for param in function.params]
    types = dict(variant.signature)
    constants: dict[Place, Any] = {(order.index(name),): _to_triton(value, place) for name, value in variant.constexprs}
    constants |= {place_in(path, order): None for path, kind in leaves_of(variant) if kind == NONE}
    constants |= {
        place_in(path, order): _to_triton(constant_of(kind), place)
        for path, kind in leaves_of(variant)
        if is_constant(kind)
    }
    constants |= {place_in(path, order): 1 for path, hint in variant.hints if hint == 1}
    for number, param in enumerate(function.params):
        if param.is_constexpr:
            constants.setdefault((number,), param.default)
    spelled = {name: nested(types.get(name, ""), (number,), constants) for number, name in enumerate(order)}
    attrs = {place_in(path, order): [["tt.divisibility", 16]] for path, hint in variant.hints if hint == 16}
    if not function.is_gluon():
        return ASTSource(function, spelled, constants, attrs)
    spelled = {name: _with_layouts(kind, _backend_of(variant.arch)) for name, kind in spelled.items()}
    return GluonASTSource(function, spelled, constants, attrs)


def _with_layouts(kind: Any, vendor: Backend) -> Any:
    """Return a type in which each descriptor has the shared-memory layout that Gluon requires."""
    if isinstance(kind, tuple):
        members = [_with_layouts(member, vendor) for member in kind]
        return type(kind)(*members) if hasattr(kind, "_fields") else tuple(members)
    if not is_descriptor(kind):
        return kind
    bare = plain(kind)
    element, block = descriptor_parts(bare)
    layout = vendor.shared_layout(block, dtype(dtype_name(element)), layout_in(kind))
    return f"{bare.removesuffix('>')},{layout!r}>"


def _to_triton(value: Value, place: SourcePlace) -> Any:
    if isinstance(value, DType):
        return dtype(value.name)
    if isinstance(value, FunctionRef):
        return _referred(value, place)
    if isinstance(value, tuple):
        return tuple(_to_triton(item, place) for item in value)
    return value


def _referred(value: FunctionRef, place: SourcePlace) -> Any:
    """Return the function, layout or, for a recorded kernel, member of an enum that a constexpr's value names.

    `place`: where the kernel's source is.
    """
    if value.name.startswith(LAYOUTS):
        return closures.layout_of(value.name, place.where)
    if place.recorded and value.name not in dict(place.functions):
        # described before, so that its enums are made
        _named(place)
        return _rebuilt(place).member(value.name)
    return _find(_function_place(value, place))


def _function_place(function: FunctionRef, place: SourcePlace) -> SourcePlace:
    if not place.recorded:
        return dataclasses.replace(place, spelling=function.name)
    spelling = dict(place.functions).get(function.name)
    if spelling is None:
        what = f"expected the recording to hold the function {function.name}: record again"
        raise ManifestError(what, where=place.where)
    return dataclasses.replace(place, spelling=spelling)


@contextlib.contextmanager
def _quiet_triton(log: io.StringIO, vendor: Backend, *, line_info: bool) -> Iterator[None]:
    """Make Triton compile without its caches, into a temporary folder, and write its output to `log`."""
    folder = tempfile.mkdtemp(prefix="nojit-compile-")
    outer = tempfile.tempdir
    # Triton leaves temporary files behind when an assembler fails
    tempfile.tempdir = folder
    try:
        with knobs.compilation.scope(), knobs.cache.scope(), vendor.logging(), contextlib.redirect_stdout(log):
            # line info holds absolute source paths: two checkouts would give two images
            knobs.compilation.disable_line_info = not line_info
            knobs.compilation.always_compile = True
            knobs.compilation.store_binary_only = True
            knobs.cache.dir = folder
            # a custom cache manager could return images that this build did not compile
            knobs.cache.manager_class = knobs.cache.remote_manager_class = None
            yield
    finally:
        tempfile.tempdir = outer
        shutil.rmtree(folder, ignore_errors=True)


@triton.jit  # type: ignore[untyped-decorator]
def _nothing() -> None:
    pass


def warm_up(arch: str) -> None:
    """Compile an empty kernel, so that forks of this process inherit Triton's one-time initialization."""
    # the first variant reports any problem of the toolchain
    with (
        contextlib.suppress(Exception),
        reads.own_work(),
        _quiet_triton(io.StringIO(), _backend_of(arch), line_info=False),
        _current_target(arch),
    ):
        source = ASTSource(_nothing, {}, {}, {})
        triton.compile(source, target=gpu_target(arch), options={"enable_fp_fusion": True})


@contextlib.contextmanager
def _current_target(arch: str) -> Iterator[None]:
    """Make Triton report the build's target as the current GPU, until the ``with`` block ends."""
    _simulate(arch)
    driver = _begun[-1].driver if _begun else _backend_of(arch).driver(arch)
    # the property would look for a GPU
    before = vars(active_driver)["_active"]
    active_driver.set_active(driver)
    try:
        yield
    finally:
        active_driver.set_active(before)


def _launch(metadata: Any, passed: Sequence[Leaf], arch: str, where: str) -> Launch:
    # None for a target without tensor maps
    descriptors = metadata.tensordesc_meta
    if descriptors and _DOUBLES_SHAPES and any(entry["fp4_padded"] for entry in descriptors):
        # the kernel would read a shape in other units than the runtime passes
        raise CompileError(
            "expected Triton 3.9 or later for padded 4-bit descriptors: pip install --upgrade triton",
            got=triton.__version__,
            where=where,
        )
    try:
        tensor_maps = tensor_maps_of(passed, descriptors) if descriptors else ()
    except ValueError as error:
        raise CompileError(str(error), where=where) from None
    return Launch(
        symbol=metadata.name,
        layout=layout_of(
            passed,
            tensor_maps=bool(tensor_maps),
            rounds_tf32="round_f32_to_tf32" in TensorDescriptor.__dataclass_fields__,
        ),
        num_warps=metadata.num_warps,
        num_ctas=metadata.num_ctas,
        shared_bytes=metadata.shared,
        global_scratch_bytes=metadata.global_scratch_size,
        global_scratch_align=metadata.global_scratch_align,
        profile_scratch_bytes=metadata.profile_scratch_size or 0,
        profile_scratch_align=metadata.profile_scratch_align or 1,
        cooperative=metadata.launch_cooperative_grid,
        pdl=_backend_of(arch).overlaps(arch) and metadata.launch_pdl,
        tensor_maps=tensor_maps,
    )
