"""``triton.knobs``: settings of Triton, read from environment variables where a program does not set them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from nojit.runtime.serve.standin.registry import export, exported

__all__ = ["GROUPS", "HookChain", "Knob", "Knobs", "runtime"]

_TRUE: Final = frozenset({"1", "true", "yes", "on", "y"})
_UNSET: Final = object()


def _flag(text: str) -> bool:
    return text.lower() in _TRUE


def _number(key: str) -> Callable[[str], int]:
    def read(text: str) -> int:
        try:
            return int(text)
        except ValueError as error:
            raise RuntimeError(f"Unable to use {key}={text}: expected int") from error

    return read


def _tool(name: str) -> Callable[[str | None], Any]:
    def find(text: str | None) -> Any:  # noqa: ARG001 - a compiler that a variable names is not used either
        raise RuntimeError(f"Cannot find {name}: nojit's stand-in for Triton has no compiler")

    return find


def _class(text: str) -> Any:
    import importlib

    module, _, name = text.partition(":")
    return getattr(importlib.import_module(module), name)


class Knob:
    """One setting: what a program set, or else what its variable says.

    Args:
        key: the variable.
        read: makes the value from the variable's text.
        default: the value without a variable, or a function that returns it.
    """

    def __init__(self, key: str, read: Callable[[str], Any] = str, default: Any = None) -> None:
        self.key = key
        self.read = read
        self.default = default

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, group: Any, owner: type | None = None) -> Any:
        if group is None:
            return self
        kept = group.__dict__.get(self.name, _UNSET)
        return self.get() if kept is _UNSET else kept

    def __set__(self, group: Any, value: Any) -> None:
        if type(value).__name__ == "Env":
            group.__dict__.pop(self.name, None)
            return
        group.__dict__[self.name] = value
        if value is None:
            os.environ.pop(self.key, None)
        elif isinstance(value, bool | str | int):
            os.environ[self.key] = str(int(value) if isinstance(value, bool) else value)

    def __delete__(self, group: Any) -> None:
        group.__dict__.pop(self.name, None)

    def get(self) -> Any:
        """Return the variable's value, or the default."""
        text = os.environ.get(self.key)
        if text is not None:
            return self.read(text)
        return self.default() if callable(self.default) else self.default


class _Tool(Knob):
    def get(self) -> Any:
        return self.read(os.environ.get(self.key, ""))


@exported("triton.knobs", "base_knobs")
class Knobs:
    """A group of settings."""

    @property
    def knob_descriptors(self) -> dict[str, Knob]:
        """The settings with variables."""
        return {name: knob for name, knob in vars(type(self)).items() if isinstance(knob, Knob)}

    @property
    def knobs(self) -> dict[str, Any]:
        """The values of settings with variables."""
        return {name: getattr(self, name) for name in self.knob_descriptors}

    def copy(self) -> Any:
        """Return a group with the same values."""
        made = type(self)()
        made.__dict__.update(self.__dict__)
        return made

    def reset(self) -> Any:
        """Take away what the program set."""
        for name in self.knob_descriptors:
            delattr(self, name)
        return self

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Restore values and variables at the end of a block."""
        before = {knob.key: os.environ.get(knob.key) for knob in self.knob_descriptors.values()}
        kept = dict(self.__dict__)
        try:
            yield
        finally:
            self.__dict__.clear()
            self.__dict__.update(kept)
            for key, text in before.items():
                if text is None:
                    os.environ.pop(key, None)
                else:
                    os.environ[key] = text


@exported("triton.knobs")
class HookChain:
    """Functions to call in order, or in reverse order."""

    def __init__(self, reversed: bool = False) -> None:  # noqa: A002 - Triton's name
        self.calls: list[Callable[..., Any]] = []
        self.reversed = reversed

    def __class_getitem__(cls, item: Any) -> Any:
        return cls

    def add(self, func: Callable[..., Any]) -> None:
        """Add a function, once."""
        if func not in self.calls:
            self.calls.append(func)

    def remove(self, func: Callable[..., Any]) -> None:
        """Take a function away, if it is there."""
        if func in self.calls:
            self.calls.remove(func)

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """Call each of them."""
        for call in self.calls[::-1] if self.reversed else [*self.calls]:
            call(*args, **kwargs)


@exported("triton.knobs")
class Env:
    """Assigned to a setting, takes away what the program set."""


def _home() -> str:
    return os.environ.get("TRITON_HOME", os.path.expanduser("~/"))  # noqa: PTH111 - a str, as Triton's


def _under(folder: str) -> Callable[[], str]:
    return lambda: os.path.join(_home(), ".triton", folder)  # noqa: PTH118 - as above


def _flags(**keys: str) -> dict[str, Knob]:
    return {name: Knob(key, _flag, default=False) for name, key in keys.items()}


def _texts(**keys: str) -> dict[str, Knob]:
    return {name: Knob(key) for name, key in keys.items()}


def _optional_flags(**keys: str) -> dict[str, Knob]:
    return {name: Knob(key, _flag) for name, key in keys.items()}


def _triton_dir(self: Any, dirname: str) -> str:  # noqa: ARG001 - a method
    return _under(dirname)()


def _fusion(self: Any, requested: bool | None) -> bool:
    return not self.force_disable_fp_fusion and (self.default_fp_fusion if requested is None else requested)


_SETTINGS: Final[dict[str, dict[str, Any]]] = {
    "build": {
        **_texts(cc="CC", cudacrt_path="TRITON_CUDACRT_PATH", cudart_path="TRITON_CUDART_PATH"),
        "impl": None,
        "backend_dirs": property(lambda self: {each for each in (self.cudacrt_path, self.cudart_path) if each}),
    },
    "redis": {
        "key_format": Knob("TRITON_REDIS_KEY_FORMAT", default="triton:{key}:{filename}"),
        "host": Knob("TRITON_REDIS_HOST", default="localhost"),
        "port": Knob("TRITON_REDIS_PORT", _number("TRITON_REDIS_PORT"), 6379),
    },
    "cache": {
        "home_dir": Knob("TRITON_HOME", default=_home),
        "dump_dir": Knob("TRITON_DUMP_DIR", default=_under("dump")),
        "override_dir": Knob("TRITON_OVERRIDE_DIR", default=_under("override")),
        "dir": Knob("TRITON_CACHE_DIR", default=_under("cache")),
        "manager_class": Knob("TRITON_CACHE_MANAGER", _class),
        "remote_manager_class": Knob("TRITON_REMOTE_CACHE_BACKEND", _class),
        "get_triton_dir": _triton_dir,
    },
    "compilation": {
        **_flags(
            override="TRITON_KERNEL_OVERRIDE",
            dump_ir="TRITON_KERNEL_DUMP",
            dump_ir_extract_di_local_variables="LLVM_EXTRACT_DI_LOCAL_VARIABLES",
            store_binary_only="TRITON_STORE_BINARY_ONLY",
            always_compile="TRITON_ALWAYS_COMPILE",
            enable_asan="TRITON_ENABLE_ASAN",
            disable_line_info="TRITON_DISABLE_LINE_INFO",
            front_end_debugging="TRITON_FRONT_END_DEBUGGING",
            allow_non_constexpr_globals="TRITON_ALLOW_NON_CONSTEXPR_GLOBALS",
            fpsan_homomorphic_casts="TRITON_FPSAN_HOMOMORPHIC_CASTS",
        ),
        "use_ir_loc": Knob("USE_IR_LOC"),
        "instrumentation_mode": os.environ.get("TRITON_INSTRUMENTATION_MODE", ""),
        "listener": None,
    },
    "autotuning": {**_flags(cache="TRITON_CACHE_AUTOTUNING", print="TRITON_PRINT_AUTOTUNING"), "listener": None},
    "runtime": {
        **_flags(interpret="TRITON_INTERPRET"),
        "debug": _flag(os.environ.get("TRITON_DEBUG", "")),
        "override_arch": Knob("TRITON_OVERRIDE_ARCH"),
        "launch_enter_hook": HookChain(),
        "launch_exit_hook": HookChain(reversed=True),
        "kernel_load_start_hook": HookChain(),
        "kernel_load_end_hook": HookChain(reversed=True),
        "kernel_unload_hook": HookChain(),
        "jit_cache_hook": None,
        "jit_post_compile_hook": None,
        "add_stages_inspection_hook": None,
    },
    "language": {
        "fp32_default": Knob("TRITON_F32_DEFAULT"),
        "default_fp_fusion": Knob("TRITON_DEFAULT_FP_FUSION", _flag, default=True),
        **_flags(force_disable_fp_fusion="TRITON_FORCE_DISABLE_FP_FUSION"),
        "fp_fusion_enabled": _fusion,
    },
    "nvidia": {
        **{
            name.replace("-", "_"): _Tool(f"TRITON_{name.upper().replace('-', '_')}_PATH", _tool(name))
            for name in ("cuobjdump", "nvdisasm", "ptxas", "ptxas-blackwell")
        },
        **_flags(
            dump_nvptx="NVPTX_ENABLE_DUMP",
            disable_ptxas_opt="DISABLE_PTXAS_OPT",
            dump_ptxas_log="TRITON_DUMP_PTXAS_LOG",
        ),
        **_texts(
            ptxas_options="PTXAS_OPTIONS",
            mock_ptx_version="TRITON_MOCK_PTX_VERSION",
            libdevice_path="TRITON_LIBDEVICE_PATH",
            libcuda_path="TRITON_LIBCUDA_PATH",
        ),
    },
    "amd": {
        **_flags(
            buffer_ops_analyze_small_tensor_range="AMDGCN_ANALYZE_SMALL_TENSOR_RANGE",
            dump_amdgcn="AMDGCN_ENABLE_DUMP",
            scalarize_packed_fops="AMDGCN_SCALARIZE_PACKED_FOPS",
            swap_mir_enable_misched="TRITON_SWAP_MIR_ENABLE_MISCHED",
        ),
        "use_buffer_ops": Knob("AMDGCN_USE_BUFFER_OPS", _flag, default=True),
        "use_buffer_atomics": Knob("AMDGCN_USE_BUFFER_ATOMICS", _flag, default=True),
        **_texts(
            codegen_path="TRITON_AMD_CODEGEN_PATH",
            libhip_path="TRITON_LIBHIP_PATH",
            dump_mir="TRITON_DUMP_MIR",
            swap_mir="TRITON_SWAP_MIR",
        ),
        **_optional_flags(
            use_block_pingpong="TRITON_HIP_USE_BLOCK_PINGPONG",
            use_in_thread_transpose="TRITON_HIP_USE_IN_THREAD_TRANSPOSE",
            use_async_copy="TRITON_HIP_USE_ASYNC_COPY",
            use_coexec_scheduler="TRITON_HIP_USE_COEXEC_SCHEDULER",
            use_expert_scheduling="TRITON_HIP_USE_EXPERT_SCHEDULING",
        ),
    },
    "proton": {
        **_flags(disable="TRITON_PROTON_DISABLE", enable_hw_trace="TRITON_ENABLE_HW_TRACE"),
        "enable_nvtx": Knob("TRITON_ENABLE_NVTX", _flag, default=True),
        **_texts(
            cupti_lib_dir="TRITON_CUPTI_LIB_PATH",
            cupti_lib_blackwell_dir="TRITON_CUPTI_LIB_BLACKWELL_PATH",
            hsa_runtime_path="TRITON_HSA_RUNTIME_PATH",
            hsa_runtime_library="TRITON_HSA_RUNTIME_LIBRARY",
            rocprofiler_sdk_include_path="TRITON_ROCPROFILER_SDK_INCLUDE_PATH",
            rocprofiler_sdk_lib_path="TRITON_ROCPROFILER_SDK_LIB_PATH",
            rocprofiler_sdk_library="TRITON_ROCPROFILER_SDK_LIBRARY",
            roctracer_lib_path="TRITON_ROCTRACER_LIB_PATH",
            roctracer_library="TRITON_ROCTRACER_LIBRARY",
            roctx_lib_path="TRITON_ROCTX_LIB_PATH",
        ),
        "roctx_library": Knob("TRITON_ROCTX_LIBRARY", default="libroctx64.so"),
        "profile_buffer_size": Knob("TRITON_PROFILE_BUFFER_SIZE", _number("TRITON_PROFILE_BUFFER_SIZE"), 1 << 26),
        "profile_metric_buffer_size": Knob(
            "TRITON_PROFILE_METRIC_BUFFER_SIZE", _number("TRITON_PROFILE_METRIC_BUFFER_SIZE"), 1 << 26
        ),
    },
}
GROUPS: Final[dict[str, Any]] = {
    name: type(f"{name}_knobs", (Knobs,), {"__module__": "triton.knobs", **settings})()
    for name, settings in _SETTINGS.items()
}
runtime: Any = GROUPS["runtime"]


@exported("triton.knobs")
def refresh_knobs() -> None:
    """Read again the variables that are read once."""
    GROUPS["runtime"].debug = _flag(os.environ.get("TRITON_DEBUG", ""))
    GROUPS["compilation"].instrumentation_mode = os.environ.get("TRITON_INSTRUMENTATION_MODE", "")


export(
    "triton.knobs",
    **GROUPS,
    **{f"{name}_knobs": type(group) for name, group in GROUPS.items()},
    env=Env(),
    propagate_env=True,
)
