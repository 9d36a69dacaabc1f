"""Facts of a kernel function for the planner: params, decorators, digest, source closures."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence
from typing import Any

from nojit.aot.compile.sources.captured import Captured
from nojit.aot.compile.sources.decorators import read_decorators
from nojit.aot.compile.sources.outline_reader import read_configs, read_heuristics, read_optional, read_uses
from nojit.aot.compile.sources.source_import import recorded_closure
from nojit.aot.compile.triton import closures
from nojit.aot.compile.triton.functions import find, function_place, named
from nojit.aot.compile.triton.own_toolchain import read_own_settings
from nojit.aot.compile.triton.simulated_gpu import dedicated, simulate
from nojit.aot.compile.triton.source_digest import source_digest
from nojit.aot.plan.function_facts import HEURISTICS, KernelSource, SourcePlace
from nojit.aot.plan.outline import Outline
from nojit.runtime.base.strict_json import canonical_json
from nojit.runtime.base.wording import worded
from nojit.runtime.errors import ManifestError
from nojit.runtime.recording.closure import capture, digest_of
from nojit.runtime.table.parts import MISSING, Param
from nojit.runtime.values import FunctionRef
from triton.language.core import constexpr
from triton.tools.tensor_descriptor import TensorDescriptor

__all__ = ["captured", "describe", "outline"]


def describe(place: SourcePlace, arch: str = "") -> KernelSource:
    """Return the params, dependencies and digest of a kernel function.

    Args:
        place: where the function is.
        arch: the target. After `begin`, the source sees a GPU of this arch; without `begin` it sees the machine's own GPU.

    Raises:
        ManifestError: the module, file or function does not exist, or the function is not ``@triton.jit``.
        CompileError: a setting of Triton has a value that builds refuse.
    """
    simulate(arch)
    # before the import: under TRITON_INTERPRET the decorator makes functions of another class
    read_own_settings()
    named(place)
    settings = read_own_settings()
    function = find(place)
    try:
        digest = source_digest(function)
    except Exception as error:
        # Triton's walk refuses what its compiler would refuse, for example a call of a plain Python function
        raise ManifestError(
            "expected a function that Triton can read", got=f"{type(error).__name__}: {error}", where=place.where
        ) from error
    if any(param.is_constexpr and _default(param) == () for param in function.params):
        raise ManifestError(
            "expected *args without tl.constexpr: remove the annotation", got=function.__name__, where=place.where
        )
    state = dedicated()
    around = read_decorators(named(place), function, TensorDescriptor)
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
        answers=tuple(state.device.answers()) if state else (),
        of_arch=bool(state and state.device.by_arch),
        of_device=tuple(state.device.answers(state.device.by_device)) if state else (),
        reached=tuple(state.baseline.news()) if state else (),
    )


def outline(place: SourcePlace, arch: str) -> Outline:
    """Return what the source of a kernel function tells about how it is called.

    Args:
        place: where the function is.
        arch: the target.

    Raises:
        ManifestError: as `describe`.
    """
    source, function = describe(place, arch), find(place)
    configs, key, prune = read_configs(named(place), function)
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
    simulate(arch)
    places = {name: function_place(FunctionRef(name), place) for name in _captured_names(names, place)}
    found: dict[str, bytes] = {}
    files: dict[str, str] = {}
    digests: dict[str, str] = {}
    for name, each in {"": place, **places}.items():
        try:
            closure = recorded_closure(each) if each.recorded else capture(find(each))
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
