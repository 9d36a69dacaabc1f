"""Settings of Triton that can change machine code, and the role of each in a build.

A setting is a knob of ``triton.knobs``, set by its environment variable or by code, or a variable that only Triton's C++
reads. This module gives every setting a role: refused, part of a variant's key, set by the build itself, or without
effect on an image. An unknown setting, for example of a later Triton, is part of the key.

This module does not import Triton: the caller passes ``triton.knobs``.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from types import FunctionType, ModuleType
from typing import Any, Final

from nojit.aot.backends.registry import vendors
from nojit.aot.backends.settings import Role, Setting, hashed, keyed, own, refused, without_effect
from nojit.aot.compile.toolchain.digests import file_digest
from nojit.runtime.errors import CompileError

__all__ = [
    "KNOBS",
    "VARIABLES",
    "all_knobs",
    "all_variables",
    "knobs_in",
    "read_settings",
    "setting_of",
    "settings_words",
]


_PRINTS: Final = "prints during compilation, which a cached variant skips"
_STORES: Final = "each variant compiles into its own folder, with Triton's default cache manager"
_LAUNCHES: Final = "used at launches only"
_OTHER_GPUS: Final = "only AMD's backend reads it"
_PROFILES: Final = "only the profiler reads it"
_TUNES: Final = "only the autotuner reads it, which builds do not run"

# the knobs of Triton 3.6 to 3.9, by group and name, except those of vendors; `amd` and `proton` as a whole
KNOBS: Final[dict[str, Setting]] = {
    "build.*": without_effect(_LAUNCHES),
    "redis.*": without_effect(_STORES),
    "cache.*": own(_STORES),
    "proton.*": without_effect(_PROFILES),
    "autotuning.*": without_effect(_TUNES),
    "compilation.override": refused("it replaces kernels by files in TRITON_OVERRIDE_DIR", "TRITON_KERNEL_OVERRIDE"),
    "compilation.dump_ir": keyed("adds versions to LLVM's IR, and dumps it", "TRITON_KERNEL_DUMP"),
    "compilation.dump_ir_extract_di_local_variables": keyed(
        "makes ptxas read debug info, which disables optimizations", "LLVM_EXTRACT_DI_LOCAL_VARIABLES"
    ),
    "compilation.store_binary_only": own("the build needs only the binary", "TRITON_STORE_BINARY_ONLY"),
    "compilation.always_compile": own("the build has its own cache", "TRITON_ALWAYS_COMPILE"),
    "compilation.use_ir_loc": keyed("changes the lines of line info", "USE_IR_LOC"),
    "compilation.enable_asan": keyed("adds checks", "TRITON_ENABLE_ASAN"),
    "compilation.disable_line_info": own("the build requests line info for twins only", "TRITON_DISABLE_LINE_INFO"),
    "compilation.front_end_debugging": without_effect("lengthens tracebacks", "TRITON_FRONT_END_DEBUGGING"),
    "compilation.allow_non_constexpr_globals": keyed(
        "compiles kernels that are otherwise refused", "TRITON_ALLOW_NON_CONSTEXPR_GLOBALS"
    ),
    "compilation.instrumentation_mode": refused(
        "it makes kernels that only a running Triton can launch", "TRITON_INSTRUMENTATION_MODE"
    ),
    "compilation.fpsan_homomorphic_casts": without_effect("used at launches only", "TRITON_FPSAN_HOMOMORPHIC_CASTS"),
    "compilation.listener": without_effect("is notified of compilations"),
    "runtime.interpret": refused(
        "it makes functions for the interpreter, which cannot be compiled", "TRITON_INTERPRET"
    ),
    "runtime.debug": without_effect("used at launches only; builds use the option `debug`", "TRITON_DEBUG"),
    "runtime.override_arch": refused("it compiles for another GPU than the bundle's", "TRITON_OVERRIDE_ARCH"),
    "runtime.launch_enter_hook": without_effect(_LAUNCHES),
    "runtime.launch_exit_hook": without_effect(_LAUNCHES),
    "runtime.kernel_load_start_hook": without_effect(_LAUNCHES),
    "runtime.kernel_load_end_hook": without_effect(_LAUNCHES),
    "runtime.kernel_unload_hook": without_effect(_LAUNCHES),
    "runtime.jit_cache_hook": without_effect(_LAUNCHES),
    "runtime.jit_post_compile_hook": without_effect(_LAUNCHES),
    "runtime.add_stages_inspection_hook": refused("it changes the compiler's stages in ways that no key can capture"),
    "language.fp32_default": keyed("sets the precision of fp32 products", "TRITON_F32_DEFAULT"),
    "language.default_fp_fusion": keyed(
        "sets whether products and sums fuse, unless the option does", "TRITON_DEFAULT_FP_FUSION"
    ),
    "language.force_disable_fp_fusion": keyed("overrides the option", "TRITON_FORCE_DISABLE_FP_FUSION"),
}

# variables that Triton 3.6 to 3.9 reads in C++ (include/triton/Tools/Sys/GetEnv.h) and in Python, apart from the knobs and the
# variables of vendors
VARIABLES: Final[dict[str, Setting]] = {
    "DISABLE_LLVM_OPT": keyed("disables optimizations"),
    "TRITON_ENABLE_EXPERIMENTAL_CONSAN": keyed("adds checks"),
    "TRITON_CONSAN_INIT_ALLOCATIONS": keyed("adds checks"),
    "TRITON_ENABLE_LLVM_DEBUG": keyed(_PRINTS),
    "TRITON_LLVM_DEBUG_ONLY": keyed(_PRINTS),
    "LLVM_IR_ENABLE_DUMP": keyed(_PRINTS),
    "LLVM_ENABLE_TIMING": keyed(_PRINTS),
    "MLIR_ENABLE_DIAGNOSTICS": keyed(_PRINTS),
    "MLIR_ENABLE_DUMP": keyed(_PRINTS),
    "MLIR_ENABLE_TIMING": keyed(_PRINTS),
    "MLIR_DISABLE_MULTITHREADING": keyed("part of Triton's own cache key"),
    "TRITON_PARTITION_SCHEDULING_ENABLE_DUMP_DOT": keyed(_PRINTS),
    "TRITON_PARTITION_SCHEDULING_DUMP_DATA_ONLY": keyed(_PRINTS),
    "TRITON_PARTITION_SCHEDULING_DUMP_LOOP_ONLY": keyed(_PRINTS),
    "LLVM_PASS_PLUGIN_PATH": hashed("names passes that LLVM runs"),
    "TRITON_PLUGIN_PATHS": hashed("names passes and dialects that Triton loads"),
    "TRITON_PLUGIN_VERSION_CHECK": keyed("selects which plugins are loaded"),
    "MLIR_DUMP_PATH": without_effect("sets the place of dumps"),
    "TRITON_REPRODUCER_PATH": without_effect("sets the place of IR that crashed a pass"),
    "TRITON_ENABLE_PYTHON_STACKTRACE": without_effect("lengthens tracebacks"),
    "CC": without_effect(_LAUNCHES),
    "CXX": without_effect(_LAUNCHES),
    "LD_LIBRARY_PATH": without_effect("where Triton looks for the driver"),
    "TRITON_DEFAULT_BACKEND": without_effect("selects a driver; builds use none"),
    "TRITON_BACKENDS_IN_TREE": without_effect("the toolchain's digest covers the backend"),
}
"""Variables without a knob."""

# longer values, and values that are not printable, are shown as a digest
_VALUE_CHARS_MAX: Final = 120
_PLAIN: Final = (bool, int, float, str)
_WATCHED: Final = frozenset({Role.REFUSED, Role.KEYED, Role.HASHED})
_UNDECIDED: Final = keyed("unknown to nojit")


@dataclass(frozen=True, slots=True)
class _Knob:
    """One knob whose value matters."""

    group: Any
    name: str
    spelling: str
    """Display name: the variable that a user sets, else the knob."""
    variable: str
    """Variable that the knob reads at each access; empty if it reads none."""
    default: Any
    setting: Setting


def knobs_in(knobs: ModuleType) -> Iterator[tuple[str, str]]:
    """Yield the group and the name of every knob in a module ``triton.knobs``."""
    for group, holder in vars(knobs).items():
        if not isinstance(holder, knobs.base_knobs):
            continue
        kind = type(holder)
        for name in {**vars(kind), **vars(kind).get("__annotations__", {})}:
            value = vars(kind).get(name)
            if not name.startswith("_") and not isinstance(value, FunctionType | property):
                yield group, name


def all_knobs() -> dict[str, Setting]:
    """Return how a build treats each knob: Triton's own, and those of every vendor."""
    groups = {vendor.TRITON for vendor in vendors()}
    own_knobs = {name: setting for name, setting in KNOBS.items() if name.partition(".")[0] not in groups}
    return own_knobs | {name: setting for vendor in vendors() for name, setting in vendor.KNOBS.items()}


def all_variables() -> dict[str, Setting]:
    """Return how a build treats each variable without a knob, by name: Triton's own, and those of every vendor."""
    return VARIABLES | {name: setting for vendor in vendors() for name, setting in vendor.VARIABLES.items()}


def setting_of(group: str, name: str) -> Setting | None:
    """Return how a build treats a knob; None for an unknown one."""
    known = all_knobs()
    return known.get(f"{group}.{name}") or known.get(f"{group}.*")


@lru_cache(maxsize=1)
def _knobs(knobs: ModuleType) -> tuple[tuple[_Knob, ...], frozenset[str]]:
    """Return the knobs whose values matter, and the variables of all knobs."""
    watched, variables = [], set()
    for group, name in knobs_in(knobs):
        setting = setting_of(group, name) or _UNDECIDED
        described = vars(type(getattr(knobs, group))).get(name)
        variable = getattr(described, "key", "")
        # some knobs read their variable only at Triton's import and do not name it
        spelling = variable or setting.variable or f"triton.knobs.{group}.{name}"
        variables |= {spelling}
        if setting.role in _WATCHED:
            default = getattr(described, "default", None) if variable else None
            watched.append(_Knob(getattr(knobs, group), name, spelling, variable, default, setting))
    return tuple(watched), frozenset(variables)


def read_settings(
    knobs: ModuleType, getenv: Callable[[str], str | None], invalidating: Iterable[str] = ()
) -> tuple[tuple[str, str], ...]:
    """Return the settings that are set and can change machine code: name and value, sorted by name.

    Args:
        knobs: ``triton.knobs``. Values that code has set count like those of the environment.
        getenv: reads a variable.
        invalidating: the variables that Triton itself puts into its cache key.

    Raises:
        CompileError: a setting is set that builds refuse.
    """
    watched, of_knobs = _knobs(knobs)
    told: dict[str, str] = {}
    for knob in watched:
        # skip unset knobs, which most are: computing a knob's value is slower than this check
        if knob.variable and knob.name not in vars(knob.group) and getenv(knob.variable) is None:
            continue
        value = getattr(knob.group, knob.name)
        if value is None or value in {knob.default, ""}:
            continue
        if knob.setting.role is Role.REFUSED:
            what = f"expected {knob.spelling} to be unset in a build, since {knob.setting.why}"
            raise CompileError(what, got=_shown(value))
        told[knob.spelling] = _content(value) if knob.setting.role is Role.HASHED else _shown(value)
    variables = all_variables()
    for name in {*variables, *invalidating} - of_knobs:
        role = variables.get(name, _UNDECIDED).role
        text = getenv(name)
        if text and role in _WATCHED:
            told[name] = _content(text) if role is Role.HASHED else _shown(text)
    return tuple(sorted(told.items()))


def settings_words(settings: Iterable[tuple[str, str]]) -> str:
    """Return settings in one line: ``DISABLE_PTXAS_OPT=1 PTXAS_OPTIONS='-O1 -v'``."""
    return " ".join(f"{name}={shlex.quote(value)}" for name, value in settings)


def _shown(value: object) -> str:
    """Return the text of a value in one line, different for different values."""
    if isinstance(value, bool):
        return str(int(value))
    # an object is identified only by its type: the build cannot know its behavior
    text = str(value) if isinstance(value, _PLAIN) else f"{type(value).__module__}.{type(value).__qualname__}"
    if len(text) <= _VALUE_CHARS_MAX and text.isprintable():
        return text
    return f"sha256:{hashlib.sha256(text.encode(errors='surrogateescape')).hexdigest()}"


def _content(paths: object) -> str:
    """Return the digests of the files in `paths`, separated by colons like these, since paths differ between machines."""
    return ":".join(_file(path) for path in str(paths).split(":") if path)


def _file(path: str) -> str:
    try:
        return f"sha256:{file_digest(path)}"
    except OSError:
        # Triton reports it if it needs the file
        return "unreadable"
