"""Kernels that torch.compile generates: what identifies them, and how Inductor compiled them.

Inductor writes a module for each kernel and compiles it itself, not through `JITFunction.run`. A generated kernel is recorded as any
other: a source closure and a specialization, under the module `MODULE`, not that of the file. The config that Inductor selected
is a winner whose key is `key_of`: it depends on the kernel's types, constants, hints and size hints, not on paths or device numbers.
"""

from __future__ import annotations

import hashlib
import itertools
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from sys import modules
from typing import Any, Final, Protocol

from nojit.runtime.base.strict_json import Json, canonical_json
from nojit.runtime.call.constexprs import constexpr_value
from nojit.runtime.errors import ArgumentError
from nojit.runtime.recording.closure import Closure, capture
from nojit.runtime.recording.specialization import Specialization
from nojit.runtime.recording.winner_spelling import config_by_name
from nojit.runtime.types.constants import constant_type
from nojit.runtime.types.names import NONE
from nojit.runtime.values import encode_value

__all__ = [
    "MODULE",
    "SEEN",
    "Tell",
    "capture_generated",
    "compiled_configs",
    "facts_of_triton",
    "force_settings",
    "key_of",
    "read_generated",
    "watch",
]

MODULE: Final = "torch._inductor"
"""Recorded module of every generated kernel."""
SEEN: Final = {"compile_threads": 1, "bundle_triton_into_fx_graph_cache": False}
"""Settings with which Inductor compiles every kernel in this process."""
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
    """Return the digest, in hex, of the case that an Inductor autotuner selects a config for.

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


def facts_of_triton() -> dict[str, Json]:
    """Return what Inductor's caches know this Triton by: its ``triton_key``, and the ``backend_hash`` for the current GPU."""
    from torch._inductor.runtime.triton_compat import triton_key  # noqa: PLC0415 - only programs that compile have it
    from torch.utils._triton import triton_backend  # noqa: PLC0415 - as above

    return {"triton_key": str(triton_key()), "backend_hash": str(triton_backend().hash())}


def _hints_in(meta: Mapping[str, Any]) -> Mapping[Any, Any]:
    configs = meta.get("configs") or [{}]
    # before Triton 3.3, Inductor had a class of its own for hints
    return configs[0] if isinstance(configs[0], Mapping) else {}


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


def force_settings(config: Any, values: Mapping[str, Any]) -> Callable[[], None]:
    """Change settings of torch in every thread, over the settings of the program; return a function that ends it.

    A setting has its old value again once all who forced it have ended, in any order.

    Args:
        config: a module of settings, such as ``torch._inductor.config``.
        values: the settings by name. Two callers must not force different values of one at the same time.
    """
    holder = object()

    def begin() -> None:
        with _lock:
            for name, value in values.items():
                key = config.__name__, name
                if key not in _held:
                    _held[key] = _Forced(config, name)
                    _held[key].force(value)
                _held[key].holders.add(holder)

    def end() -> None:
        with _lock:
            for name in values:
                held = _held.get((config.__name__, name))
                if held is None or holder not in held.holders:
                    continue
                held.holders.remove(holder)
                if not held.holders:
                    del _held[config.__name__, name]
                    held.restore()

    try:
        begin()
    except (AttributeError, KeyError):
        # this torch lacks a setting
        end()
        raise
    return end


class _Forced:
    """A setting that somebody forces.

    Args:
        config: the module of settings.
        name: name of the setting.

    Attributes:
        holders: who forces it.
    """

    def __init__(self, config: Any, name: str) -> None:
        self.holders: set[object] = set()
        self._config = config
        self._name = name
        self._before = getattr(config, name)
        entry = config._config[name]  # noqa: SLF001 - no other name for it
        # from torch 2.13 on, what a program sets holds for one thread
        self._entry = entry if hasattr(entry, _FORCED) else None
        self._forced = getattr(entry, _FORCED, None)

    def force(self, value: Any) -> None:
        """Set it in every thread."""
        setattr(self._config, self._name, value)
        if self._entry is not None:
            setattr(self._entry, _FORCED, value)

    def restore(self) -> None:
        """Set it as it was before."""
        if self._entry is not None:
            setattr(self._entry, _FORCED, self._forced)
        setattr(self._config, self._name, self._before)


_FORCED: Final = "env_value_force"
_lock = threading.Lock()
# by module and name
_held: dict[tuple[str, str], _Forced] = {}

# -- recording -------------------------------------------------------------------------------------------------------

_local = threading.local()
# configs that an autotuner compiled, with source and options
_compiled: weakref.WeakKeyDictionary[Any, list[tuple[Any, Any, Mapping[str, Any]]]] = weakref.WeakKeyDictionary()


def compiled_configs(autotuner: Any) -> Sequence[tuple[Any, Any, Mapping[str, Any]]]:
    """Return the configs that an Inductor autotuner compiled while it was watched, each with its ``ASTSource`` and options."""
    return _compiled.get(autotuner, ())


class Tell(Protocol):
    """Who is told of generated kernels."""

    def won_by_inductor(
        self, tuner: Any, source: Any, options: Mapping[str, Any], config: Any, names: Sequence[str], /
    ) -> Any:
        """Learn what an autotuner selected, once, after its first launch; return what counts its launches, or None.

        `names` are those of the arguments that its launches pass, in order. The result has ``launches`` and ``due``, as
        `nojit.runtime.recording.live.Known`.
        """

    def launched(self, known: Any, number: int, grid: Any, args: Sequence[Any], /) -> object:
        """Learn a launch that is due: its number, its grid and its arguments."""

    def lack(self, function: Any, what: str, /) -> object:
        """Learn of a kernel that cannot be recorded."""

    def fail(self, error: Exception, where: str, /) -> object:
        """Learn of a failure."""


def watch(tell: Tell) -> Callable[[], None]:
    """Report the kernels that Inductor selects and launches from now on; return a function that ends it.

    Inductor compiles in this process meanwhile, because its worker processes would not report.

    Args:
        tell: is told of them.
    """
    import torch._inductor.config as settings  # noqa: PLC0415 - only programs that compile have it
    import torch._inductor.runtime.triton_heuristics as heuristics  # noqa: PLC0415 - as above
    import triton  # noqa: PLC0415 - as above

    tuner = heuristics.CachingAutotuner
    run = tuner.run
    launches = _Launches(tell, heuristics.GridExpr)
    counted = launches.counted

    def running(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = run(self, *args, **kwargs)
        if launches.ended:
            return result
        known = counted.get(id(self))
        if known is None:
            launches.meet(self, args, kwargs)
        elif (number := next(known.launches)) >= known.due:
            launches.write(self, known, number, args)
        return result

    precompile, compile_source = tuner._precompile_config, triton.compile  # noqa: SLF001 - no public hook sees the winner
    precompiling, compiling = _compile_hooks(precompile, compile_source, launches)
    remove = _put(
        (tuner, "_precompile_config", precompile, precompiling),
        (triton, "compile", compile_source, compiling),
        (tuner, "run", run, running),
    )
    # Inductor launches what its graph cache bundled without a compile that could be seen
    restore = force_settings(settings, SEEN)

    def end() -> None:
        launches.ended = True
        remove()
        restore()

    return end


def _compile_hooks(precompile: Any, compile_source: Any, launches: _Launches) -> tuple[Any, Any]:
    """Return hooks for the compile of a config and for Triton's compile, which keep what a config was compiled from."""

    def compiling(source: Any, *args: Any, **kwargs: Any) -> Any:
        if (seen := getattr(_local, "seen", None)) is not None:
            seen.append((source, dict(kwargs.get("options") or {})))
        return compile_source(source, *args, **kwargs)

    def precompiling(self: Any, config: Any) -> Any:
        # another watch may be around this one
        if launches.ended or getattr(_local, "seen", None) is not None:
            return precompile(self, config)
        _local.seen = []
        try:
            result = precompile(self, config)
            _compiled.setdefault(self, []).append((config, *_local.seen[-1]))
        finally:
            _local.seen = None
        return result

    return precompiling, compiling


def _put(*places: tuple[Any, str, Any, Any]) -> Callable[[], None]:
    """Replace functions by hooks, each an owner, a name, the function and the hook; return a function that puts them back.

    A hook that somebody else has replaced meanwhile stays.
    """
    for owner, name, _, hook in places:
        setattr(owner, name, hook)

    def remove() -> None:
        for owner, name, original, hook in places:
            if getattr(owner, name) is hook:
                setattr(owner, name, original)

    return remove


class _Uncounted:
    """Stands for what counts the launches of a kernel that cannot be recorded."""

    launches = itertools.repeat(0)
    due = 1


class _Launches:
    """Launches of Inductor's autotuners.

    Args:
        tell: is told of them.
        grids: Inductor's class of grids.

    Attributes:
        counted: what counts the launches of an autotuner, by its id.
        ended: whether nothing is told any more.
    """

    def __init__(self, tell: Tell, grids: Any) -> None:
        self.ended = False
        self.counted: dict[int, Any] = {}
        self._tell = tell
        self._grids = grids

    def meet(self, tuner: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Look at a launch of an autotuner whose choice is new."""
        try:
            if len(tuner.launchers) != 1 or kwargs.get("benchmark_run"):
                return
            known = self._choice(tuner)
            self.counted[id(tuner)] = known or _Uncounted
            weakref.finalize(tuner, self.counted.pop, id(tuner), None)
            if known is not None:
                self.write(tuner, known, next(known.launches), args)
        except Exception as error:  # noqa: BLE001 - the program goes on
            self._tell.fail(error, _spelled(tuner))

    def _choice(self, tuner: Any) -> Any:
        won = config_by_name(tuner.launchers[0].config)
        for config, source, options in compiled_configs(tuner):
            if config_by_name(config) == won:
                return self._tell.won_by_inductor(tuner, source, options, config, _names(tuner))
        self._tell.lack(tuner.fn, _EARLIER)
        return None

    def write(self, tuner: Any, known: Any, number: int, args: Sequence[Any]) -> None:
        """Write a launch that is due."""
        try:
            scope = {**dict(zip(_names(tuner), args, strict=False)), **{name: modules.get(name) for name in _SCOPE}}
            grid = self._grids.from_meta(tuner.inductor_meta, tuner.launchers[0].config).eval_slow(scope)
            self._tell.launched(known, number, grid, args)
        except Exception as error:  # noqa: BLE001 - as above
            self._tell.fail(error, _spelled(tuner))


_EARLIER: Final = (
    "expected a kernel of torch.compile that was compiled during the recording: start to record before the first call"
)
# what an expression of a grid may name
_SCOPE: Final = ("math", "torch", "triton")


def _names(tuner: Any) -> tuple[str, ...]:
    """Return the names of the arguments that an autotuner's launches pass, in order, without the stream."""
    code = tuner.launchers[0].__code__
    return tuple(code.co_varnames[: code.co_argcount - 1])


def _spelled(tuner: Any) -> str:
    return f"{MODULE}:{getattr(tuner.fn, '__name__', '')}"
