"""Hooks in Inductor's autotuners that tell a recorder of every choice and launch of generated kernels."""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from sys import modules
from typing import Any, Final, Protocol

from nojit.runtime.recording.forced_settings import SEEN, force_settings
from nojit.runtime.recording.generated_kernels import MODULE
from nojit.runtime.recording.winner_spelling import config_by_name

__all__ = ["Tell", "compiled_configs", "watch"]

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
        `nojit.runtime.recording.known_specialization.Known`.
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
    import torch._inductor.config as settings  # only programs that compile have it
    import torch._inductor.runtime.triton_heuristics as heuristics
    import triton

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
