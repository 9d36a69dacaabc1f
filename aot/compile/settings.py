"""Settings of Triton that can change machine code, and the role of each in a build.

A setting is a knob of ``triton.knobs``, set by its environment variable or by code, or a variable that only Triton's C++
reads. This module gives every setting a role: refused, part of a variant's key, set by the build itself, or without
effect on an image for an NVIDIA GPU. An unknown setting, for example of a later Triton, is part of the key.

This module does not import Triton: the caller passes ``triton.knobs``.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from types import FunctionType, ModuleType
from typing import Any, Final

from nojit.aot.compile.toolchain import file_digest
from nojit.runtime.errors import CompileError

__all__ = ["KNOBS", "VARIABLES", "Role", "Setting", "knobs_in", "read_settings", "setting_of", "settings_words"]


class Role(Enum):
    """The role of a setting in a build."""

    REFUSED = "refused"
    """The setting must not be set."""
    KEYED = "keyed"
    """Its value is part of each variant's key, and shown with the toolchain."""
    HASHED = "hashed"
    """Its value and the content of the files that it names are part of each variant's key."""
    OWN = "own"
    """The build sets it itself, or the toolchain's digests cover it."""
    WITHOUT_EFFECT = "without effect"
    """The setting cannot change an image for an NVIDIA GPU."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Role of one setting, and the reason."""

    role: Role
    why: str
    variable: str = ""
    """Environment variable of a knob; empty if only code sets it, and in `VARIABLES`."""


def _keyed(why: str, variable: str = "") -> Setting:
    return Setting(Role.KEYED, why, variable)


def _refused(why: str, variable: str = "") -> Setting:
    return Setting(Role.REFUSED, why, variable)


def _own(why: str, variable: str = "") -> Setting:
    return Setting(Role.OWN, why, variable)


def _without_effect(why: str, variable: str = "") -> Setting:
    return Setting(Role.WITHOUT_EFFECT, why, variable)


_PRINTS: Final = "prints during compilation, which a cached variant skips"
_STORES: Final = "each variant compiles into its own folder, with Triton's default cache manager"
_LAUNCHES: Final = "used at launches only"
_OTHER_GPUS: Final = "only AMD's backend reads it"
_PROFILES: Final = "only the profiler reads it"
_TUNES: Final = "only the autotuner reads it, which builds do not run"

# every knob of Triton 3.6 to 3.9, by group and name; `amd` and `proton` as a whole
KNOBS: Final[dict[str, Setting]] = {
    "build.*": _without_effect(_LAUNCHES),
    "redis.*": _without_effect(_STORES),
    "cache.*": _own(_STORES),
    "amd.*": _without_effect(_OTHER_GPUS),
    "proton.*": _without_effect(_PROFILES),
    "autotuning.*": _without_effect(_TUNES),
    "compilation.override": _refused("it replaces kernels by files in TRITON_OVERRIDE_DIR", "TRITON_KERNEL_OVERRIDE"),
    "compilation.dump_ir": _keyed("adds versions to LLVM's IR, and dumps it", "TRITON_KERNEL_DUMP"),
    "compilation.dump_ir_extract_di_local_variables": _keyed(
        "makes ptxas read debug info, which disables optimizations", "LLVM_EXTRACT_DI_LOCAL_VARIABLES"
    ),
    "compilation.store_binary_only": _own("the build needs only the binary", "TRITON_STORE_BINARY_ONLY"),
    "compilation.always_compile": _own("the build has its own cache", "TRITON_ALWAYS_COMPILE"),
    "compilation.use_ir_loc": _keyed("changes the lines of line info", "USE_IR_LOC"),
    "compilation.enable_asan": _keyed("adds checks", "TRITON_ENABLE_ASAN"),
    "compilation.disable_line_info": _own("the build requests line info for twins only", "TRITON_DISABLE_LINE_INFO"),
    "compilation.front_end_debugging": _without_effect("lengthens tracebacks", "TRITON_FRONT_END_DEBUGGING"),
    "compilation.allow_non_constexpr_globals": _keyed(
        "compiles kernels that are otherwise refused", "TRITON_ALLOW_NON_CONSTEXPR_GLOBALS"
    ),
    "compilation.instrumentation_mode": _refused(
        "it makes kernels that only a running Triton can launch", "TRITON_INSTRUMENTATION_MODE"
    ),
    "compilation.fpsan_homomorphic_casts": _without_effect("used at launches only", "TRITON_FPSAN_HOMOMORPHIC_CASTS"),
    "compilation.listener": _without_effect("is notified of compilations"),
    "runtime.interpret": _refused(
        "it makes functions for the interpreter, which cannot be compiled", "TRITON_INTERPRET"
    ),
    "runtime.debug": _without_effect("used at launches only; builds use the option `debug`", "TRITON_DEBUG"),
    "runtime.override_arch": _refused("it compiles for another GPU than the bundle's", "TRITON_OVERRIDE_ARCH"),
    "runtime.launch_enter_hook": _without_effect(_LAUNCHES),
    "runtime.launch_exit_hook": _without_effect(_LAUNCHES),
    "runtime.kernel_load_start_hook": _without_effect(_LAUNCHES),
    "runtime.kernel_load_end_hook": _without_effect(_LAUNCHES),
    "runtime.kernel_unload_hook": _without_effect(_LAUNCHES),
    "runtime.jit_cache_hook": _without_effect(_LAUNCHES),
    "runtime.jit_post_compile_hook": _without_effect(_LAUNCHES),
    "runtime.add_stages_inspection_hook": _refused("it changes the compiler's stages in ways that no key can capture"),
    "language.fp32_default": _keyed("sets the precision of fp32 products", "TRITON_F32_DEFAULT"),
    "language.default_fp_fusion": _keyed(
        "sets whether products and sums fuse, unless the option does", "TRITON_DEFAULT_FP_FUSION"
    ),
    "language.force_disable_fp_fusion": _keyed("overrides the option", "TRITON_FORCE_DISABLE_FP_FUSION"),
    "nvidia.cuobjdump": _without_effect("only inspects code", "TRITON_CUOBJDUMP_PATH"),
    "nvidia.nvdisasm": _without_effect("only inspects code", "TRITON_NVDISASM_PATH"),
    "nvidia.ptxas": _own("the toolchain's digest covers the program", "TRITON_PTXAS_PATH"),
    "nvidia.ptxas_blackwell": _own("the toolchain's digest covers the program", "TRITON_PTXAS_BLACKWELL_PATH"),
    "nvidia.dump_nvptx": _keyed(_PRINTS, "NVPTX_ENABLE_DUMP"),
    "nvidia.disable_ptxas_opt": _keyed("disables optimizations", "DISABLE_PTXAS_OPT"),
    "nvidia.ptxas_options": _keyed("is passed to ptxas", "PTXAS_OPTIONS"),
    "nvidia.mock_ptx_version": _keyed("replaces the version of ptxas", "TRITON_MOCK_PTX_VERSION"),
    "nvidia.dump_ptxas_log": _own("the build reads spills from it", "TRITON_DUMP_PTXAS_LOG"),
    "nvidia.libdevice_path": Setting(Role.HASHED, "is linked into kernels", "TRITON_LIBDEVICE_PATH"),
    "nvidia.libcuda_path": _without_effect(_LAUNCHES, "TRITON_LIBCUDA_PATH"),
}

# variables that Triton 3.6 to 3.9 reads in C++ (include/triton/Tools/Sys/GetEnv.h) and in Python, apart from the knobs
VARIABLES: Final[dict[str, Setting]] = {
    "ALLOW_LHS_TMEM_LAYOUT_CONVERSION": _keyed("chooses layouts"),
    "DISABLE_LLVM_OPT": _keyed("disables optimizations"),
    "DISABLE_MMA_V3": _keyed("chooses instructions"),
    "DISABLE_MMA_V5": _keyed("chooses instructions"),
    "TRITON_PREFER_TMEM_16x256_LAYOUT": _keyed("chooses layouts"),
    "TRITON_ENABLE_EXPERIMENTAL_CONSAN": _keyed("adds checks"),
    "TRITON_CONSAN_INIT_ALLOCATIONS": _keyed("adds checks"),
    "TRITON_ENABLE_LLVM_DEBUG": _keyed(_PRINTS),
    "TRITON_LLVM_DEBUG_ONLY": _keyed(_PRINTS),
    "LLVM_IR_ENABLE_DUMP": _keyed(_PRINTS),
    "LLVM_ENABLE_TIMING": _keyed(_PRINTS),
    "MLIR_ENABLE_DIAGNOSTICS": _keyed(_PRINTS),
    "MLIR_ENABLE_DUMP": _keyed(_PRINTS),
    "MLIR_ENABLE_TIMING": _keyed(_PRINTS),
    "MLIR_DISABLE_MULTITHREADING": _keyed("part of Triton's own cache key"),
    "TRITON_PARTITION_SCHEDULING_ENABLE_DUMP_DOT": _keyed(_PRINTS),
    "TRITON_PARTITION_SCHEDULING_DUMP_DATA_ONLY": _keyed(_PRINTS),
    "TRITON_PARTITION_SCHEDULING_DUMP_LOOP_ONLY": _keyed(_PRINTS),
    "LLVM_PASS_PLUGIN_PATH": Setting(Role.HASHED, "names passes that LLVM runs"),
    "TRITON_PLUGIN_PATHS": Setting(Role.HASHED, "names passes and dialects that Triton loads"),
    "TRITON_PLUGIN_VERSION_CHECK": _keyed("selects which plugins are loaded"),
    "MLIR_DUMP_PATH": _without_effect("sets the place of dumps"),
    "TRITON_REPRODUCER_PATH": _without_effect("sets the place of IR that crashed a pass"),
    "TRITON_ENABLE_PYTHON_STACKTRACE": _without_effect("lengthens tracebacks"),
    "CC": _without_effect(_LAUNCHES),
    "CXX": _without_effect(_LAUNCHES),
    "LD_LIBRARY_PATH": _without_effect("where Triton looks for the driver"),
    "TRITON_DEFAULT_BACKEND": _without_effect("selects a driver; builds use none"),
    "TRITON_BACKENDS_IN_TREE": _without_effect("the toolchain's digest covers the backend"),
}
"""Variables without a knob."""

# longer values, and values that are not printable, are shown as a digest
_VALUE_CHARS_MAX: Final = 120
_PLAIN: Final = (bool, int, float, str)
_WATCHED: Final = frozenset({Role.REFUSED, Role.KEYED, Role.HASHED})
_UNDECIDED: Final = _keyed("unknown to nojit")


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
    """Yield the group and the name of every knob of a Triton."""
    for group, holder in vars(knobs).items():
        if not isinstance(holder, knobs.base_knobs):
            continue
        kind = type(holder)
        for name in {**vars(kind), **vars(kind).get("__annotations__", {})}:
            value = vars(kind).get(name)
            if not name.startswith("_") and not isinstance(value, FunctionType | property):
                yield group, name


def setting_of(group: str, name: str) -> Setting | None:
    """Return the role of a knob; None for an unknown one."""
    return KNOBS.get(f"{group}.{name}") or KNOBS.get(f"{group}.*")


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
    for name in {*VARIABLES, *invalidating} - of_knobs:
        role = VARIABLES.get(name, _UNDECIDED).role
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
    """Return the digests of files in place of their paths, which differ between machines."""
    return ":".join(_file(path) for path in str(paths).split(":") if path)


def _file(path: str) -> str:
    try:
        return f"sha256:{file_digest(path)}"
    except OSError:
        # Triton reports it if it needs the file
        return "unreadable"
