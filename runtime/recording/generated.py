"""Kernels that torch.compile generates: what identifies them, and how Inductor compiled them.

Inductor writes a module for each kernel and compiles it itself, not through `JITFunction.run`. A generated kernel is recorded as any
other: a source closure and a specialization, under the module `MODULE` whatever file Inductor wrote. The config that Inductor selected
is a winner whose key is `key_of`: it depends on the kernel's types, constants, hints and size hints, not on paths or device numbers.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from nojit.runtime.errors import ArgumentError
from nojit.runtime.launch.keys import constexpr_value
from nojit.runtime.recording.closure import Closure, capture
from nojit.runtime.recording.specialization import Specialization
from nojit.runtime.strict import Json, canonical_json
from nojit.runtime.table.constant_types import constant_type
from nojit.runtime.table.type_names import NONE
from nojit.runtime.values import encode_value

__all__ = ["MODULE", "capture_generated", "config_of", "key_of", "read_generated", "watch"]

MODULE: Final = "torch._inductor"
"""Recorded module of every generated kernel."""
_DIVISIBLE = "tt.divisibility"


def capture_generated(function: Any) -> Closure:
    """Return the source closure of a generated kernel, independent of the file that Inductor wrote.

    Args:
        function: the ``@triton.jit`` function of an Inductor autotuner.

    Raises:
        OSError: the source of a function that it reaches cannot be read.
    """
    closure = capture(function)
    closure["definitions"][0]["module"] = MODULE
    return closure


def key_of(autotuner: Any) -> str:
    """Return the digest, in hex, of what an Inductor autotuner selects a config for.

    Args:
        autotuner: a ``CachingAutotuner``.
    """
    meta = autotuner.triton_meta
    facts: dict[str, Json] = {
        "signature": {str(name): str(kind) for name, kind in meta["signature"].items()},
        "constants": [[str(name), repr(value)] for name, value in sorted(meta.get("constants", {}).items(), key=str)],
        "hints": [*sorted(repr(pair) for pair in _hints_in(meta).items())],
        "size_hints": repr(autotuner.size_hints),
    }
    return hashlib.sha256(canonical_json(facts)).hexdigest()


def _hints_in(meta: Mapping[str, Any]) -> Mapping[Any, Any]:
    configs = meta.get("configs") or [{}]
    # before Triton 3.3, Inductor had a class of its own for hints
    return configs[0] if isinstance(configs[0], Mapping) else {}


def config_of(config: Any) -> dict[str, Json]:
    """Return a config of Inductor as a recording spells it: constexprs, and options by name.

    Args:
        config: a ``triton.Config``.
    """
    options = {name: getattr(config, name, None) for name in ("num_warps", "num_stages")}
    return {
        "kwargs": [
            [name, encode_value(constexpr_value(value, name, ""))] for name, value in sorted(config.kwargs.items())
        ],
        **{name: value for name, value in options.items() if value is not None},
    }


def read_generated(
    function: Any, source: Any, options: Mapping[str, Any], *, arch: str, closure: str
) -> Specialization:
    """Return the specialization that Inductor compiled.

    Args:
        function: the ``@triton.jit`` function.
        source: the ``ASTSource`` that Inductor gave to Triton.
        options: the compiler options of that compile.
        arch: arch of the device, such as ``sm_90``.
        closure: digest of the function's closure.

    Raises:
        ArgumentError: a constant that no bundle can hold.
    """
    names = [param.name for param in function.params]
    constants = {_path(place, names): value for place, value in source.constants.items()}
    types: list[Json] = []
    constexprs: list[Json] = []
    hints: list[Json] = []
    for param in function.params:
        name = param.name
        if param.is_constexpr:
            value = constants[name] if name in constants else getattr(param.default, "value", param.default)
            constexprs.append([name, encode_value(constexpr_value(value, name, function.__name__))])
        elif name in constants:
            kind, hint = _constant_type(constants[name], name, function.__name__)
            types.append([name, kind])
            hints += [[name, 1]] if hint else []
        else:
            types.append([name, "i1" if source.signature[name] == "u1" else str(source.signature[name])])
    hinted = [_path(place, names) for place, attributes in source.attrs.items() if _is_divisible(attributes)]
    hints += [[name, 16] for name in hinted if name not in constants]
    return {
        "module": MODULE,
        "qualname": function.__name__,
        "closure": closure,
        "params": list(names),
        "types": types,
        "hints": sorted(hints, key=canonical_json),
        "constexprs": constexprs,
        "options": [[name, encode_value(constexpr_value(value, name, ""))] for name, value in sorted(options.items())],
        "functions": [],
        "arch": arch,
    }


def _path(place: Any, names: list[str]) -> str:
    if isinstance(place, str):
        return place
    first, *rest = place
    return ".".join([names[first], *map(str, rest)])


def _is_divisible(attributes: Any) -> bool:
    return any(list(each) == [_DIVISIBLE, 16] for each in attributes)


def _constant_type(value: Any, name: str, kernel: str) -> tuple[str, bool]:
    """Return the type of a param that Inductor compiled as a constant, and whether the constant is a hint for 1."""
    if value is None:
        return NONE, False
    if type(value) is int and value == 1:
        return "i32", True
    try:
        return constant_type(constexpr_value(value, name, kernel)), False
    except ValueError as error:
        raise ArgumentError(str(error), where=f"{name} of kernel {kernel}", argument=name) from None


# -- recording -------------------------------------------------------------------------------------------------------

_local = threading.local()


def watch(tell: Callable[[Any, Any, Mapping[str, Any], Any], None]) -> Callable[[], None]:
    """Report the kernels that Inductor selects from now on; return a function that ends it.

    Inductor compiles in this process meanwhile, because its worker processes would not report.

    Args:
        tell: is called once for each autotuner, after its first launch, with the autotuner, the ``ASTSource`` and the options of the
            selected config's compile, and the config.
    """
    import torch._inductor.config as settings  # noqa: PLC0415 - only programs that compile have it
    import torch._inductor.runtime.triton_heuristics as heuristics  # noqa: PLC0415 - as above
    import triton  # noqa: PLC0415 - as above

    tuner = heuristics.CachingAutotuner
    before = (tuner._precompile_config, tuner.run, triton.compile)  # noqa: SLF001 - no public hook sees the winner
    threads, bundling = settings.compile_threads, settings.bundle_triton_into_fx_graph_cache
    precompile, run, compile_source = before

    def compiling(source: Any, *args: Any, **kwargs: Any) -> Any:
        if (seen := getattr(_local, "seen", None)) is not None:
            seen.append((source, dict(kwargs.get("options") or {})))
        return compile_source(source, *args, **kwargs)

    def precompiling(self: Any, config: Any) -> Any:
        _local.seen = []
        try:
            result = precompile(self, config)
            self.__dict__.setdefault("_nojit_compiled", []).append((config, *_local.seen[-1]))
        finally:
            _local.seen = None
        return result

    def running(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = run(self, *args, **kwargs)
        if "_nojit_told" not in self.__dict__ and len(self.launchers) == 1 and not kwargs.get("benchmark_run"):
            self._nojit_told = True
            _tell_winner(self, tell)
        return result

    tuner._precompile_config, tuner.run, triton.compile = precompiling, running, compiling  # noqa: SLF001 - as above
    # Inductor launches what its graph cache bundled without a compile that could be seen
    settings.compile_threads, settings.bundle_triton_into_fx_graph_cache = 1, False

    def end() -> None:
        tuner._precompile_config, tuner.run, triton.compile = before  # noqa: SLF001 - as above
        settings.compile_threads, settings.bundle_triton_into_fx_graph_cache = threads, bundling

    return end


def _tell_winner(autotuner: Any, tell: Callable[[Any, Any, Mapping[str, Any], Any], None]) -> None:
    won = config_of(autotuner.launchers[0].config)
    for config, source, options in autotuner.__dict__.get("_nojit_compiled", ()):
        if config_of(config) == won:
            tell(autotuner, source, options, config)
            return
