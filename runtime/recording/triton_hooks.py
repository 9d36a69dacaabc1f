"""Hooks in Triton 3.6 to 3.9 that tell a recorder of every launch, warm-up and choice of an autotuner.

- ``jit.compute_cache_key`` runs in every call of ``JITFunction.run``, after the binder: a new key shows a new specialization.
- ``CompiledKernel.launch_metadata`` runs before every launch, of ``fn[grid]`` and of ``kernel[grid]``, with the evaluated grid. A
  compiled kernel has one specialization.
- ``Autotuner._bench`` runs the trials of one config, ``Autotuner.run`` makes the choice.

Heuristics and other decorators end in ``JITFunction.run``. Hooks call what they replace, and may be replaced in turn.
"""

from __future__ import annotations

import functools
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Final

from nojit.runtime.errors import RecordingError
from nojit.runtime.recording.known_specialization import Known
from nojit.runtime.recording.recorder import Call, Recorder

__all__ = ["Hooks"]

# frames between a hook and Triton's function that reached it: hooks of others may stand between
_FRAMES_MAX: Final = 8
_GENERATED: Final = "torch._inductor."
_PASSES: Final = "expected Triton's own passes, which a build runs: unset knobs.runtime.add_stages_inspection_hook"
_FAKE: Final = "nojit.runtime.recording.fake.launches"
_COMPILED: Final = "a kernel that triton.compile made was launched: nojit records calls of @triton.jit functions"


def _is_simulated() -> bool:
    """Return whether Triton's driver is that of a simulated GPU."""
    active = vars(sys.modules["triton.runtime.driver"].driver).get("_active")
    return type(active).__module__ == _FAKE


class Hooks:
    """Hooks of one recorder. Several recorders may have hooks at the same time.

    Args:
        recorder: the recorder.

    Raises:
        RecordingError: this Triton calls none of these functions, or interprets kernels instead of compiling them.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        # whether a key needs no further look, by the id of Triton's cache of keys
        self._settled: dict[int, dict[str, bool]] = {}
        self._keys: dict[tuple[int, str], Known] = {}
        self._kernels: dict[int, Known] = {}
        self._references: dict[int, weakref.ref[Any]] = {}
        # keys whose choice is known, by the id of the autotuner
        self._tuned: dict[int, set[Any]] = {}
        self._trials = _Trials()
        self._undo = list(self._install())

    def remove(self) -> None:
        """Give Triton its functions back, except where somebody else has replaced a hook: that hook does nothing any more."""
        for owner, name, original, hook in self._undo:
            if getattr(owner, name) is hook:
                setattr(owner, name, original)

    def _install(self) -> Iterator[tuple[Any, str, Any, Any]]:
        from triton import __version__, knobs
        from triton.compiler.compiler import CompiledKernel
        from triton.runtime import autotuner, jit

        self._passes = knobs.runtime
        fake = sys.modules.get(_FAKE)
        places = [
            (jit, "compute_cache_key", self._key_hook),
            (CompiledKernel, "launch_metadata", self._launch_hook),
            *([(fake.FakeKernel, "launch_metadata", self._launch_hook)] if fake else []),
            (autotuner.Autotuner, "_bench", self._bench_hook),
            (autotuner.Autotuner, "run", self._tuning_hook),
        ]
        absent = next((name for owner, name, _ in places if not callable(getattr(owner, name, None))), "")
        if absent:
            what = "expected Triton 3.6 to 3.9, whose launches nojit can record"
            raise RecordingError(what, got=f"Triton {__version__} without {absent}")
        if knobs.runtime.interpret:
            what = "expected a program that compiles its kernels: unset TRITON_INTERPRET"
            raise RecordingError(what, got="Triton's interpreter")
        for owner, name, make in places:
            original = getattr(owner, name)
            hook = functools.wraps(original)(make(original))
            setattr(owner, name, hook)
            yield owner, name, original, hook

    # -- calls -------------------------------------------------------------------------------------------------------

    def _key_hook(self, original: Callable[..., str]) -> Callable[..., str]:
        settled, meet = self._settled, self._meet

        def compute_cache_key(kernel_key_cache: Any, specialization: Any, options: Any) -> str:
            key = original(kernel_key_cache, specialization, options)
            try:
                if settled[id(kernel_key_cache)][key]:
                    return key
            except KeyError:
                pass
            meet(kernel_key_cache, key, specialization, options)
            return key

        return compute_cache_key

    def _meet(self, keys: Any, key: str, specialization: Any, options: Any) -> None:
        """Look at a call whose specialization is new, or was neither launched nor warmed up yet."""
        try:
            scope = _scope_of_run(keys)
            if scope is None or self._recorder.stopped:
                return
            known = self._keys.get((id(keys), key))
            if known is None:
                function = scope["self"]
                call = Call(
                    function,
                    scope["bound_args"],
                    specialization,
                    options,
                    target=scope["target"],
                    device=scope["device"],
                )
                if getattr(self._passes, "add_stages_inspection_hook", None) is None:
                    known = self._recorder.meet(call) or Known()
                else:
                    known = Known()
                    self._recorder.lack(function, _PASSES)
                self._keep(function, keys)
                self._keys[id(keys), key] = known
                self._settled[id(keys)][key] = not known.digest
            if scope["warmup"]:
                self._recorder.warmed(known)
                self._settled[id(keys)][key] = True
        except Exception as error:  # noqa: BLE001 - the program goes on
            self._recorder.fail(error, "")

    def _keep(self, function: Any, keys: Any) -> None:
        """Forget a cache of keys with its function: another cache may get its id."""
        number = id(keys)
        if number not in self._settled:
            self._settled[number] = {}
            self._references[number] = weakref.ref(function, functools.partial(self._forget_keys, number))

    def _forget_keys(self, number: int, _reference: Any) -> None:
        self._references.pop(number, None)
        for key in self._settled.pop(number, {}):
            self._keys.pop((number, key), None)

    # -- launches ----------------------------------------------------------------------------------------------------

    def _launch_hook(self, original: Callable[..., Any]) -> Callable[..., Any]:
        kernels, trials, meet = self._kernels, self._trials, self._meet_kernel
        launched = self._recorder.launched

        def launch_metadata(kernel: Any, grid: Any, stream: Any, *args: Any) -> Any:
            known = kernels.get(id(kernel))
            if known is None or trials.running:
                meet(kernel, grid, args)
            elif (number := next(known.launches)) >= known.due:
                launched(known, number, grid, args)
            return original(kernel, grid, stream, *args)

        return launch_metadata

    def _meet_kernel(self, kernel: Any, grid: Any, args: tuple[Any, ...]) -> None:
        """Look at a launch of a kernel that is new, or that may be a trial."""
        try:
            known = self._kernels.get(id(kernel))
            if known is None:
                known = self._known_of(kernel)
                self._references[id(kernel)] = weakref.ref(kernel, functools.partial(self._forget_kernel, id(kernel)))
                self._kernels[id(kernel)] = known
            if self._trials.here():
                self._recorder.tried(known)
            else:
                self._recorder.launched(known, next(known.launches), grid, args)
        except Exception as error:  # noqa: BLE001 - the program goes on
            self._recorder.fail(error, "")

    def _forget_kernel(self, number: int, _reference: Any) -> None:
        self._references.pop(number, None)
        self._kernels.pop(number, None)

    def _known_of(self, kernel: Any) -> Known:
        """Return the specialization of a compiled kernel that is launched for the first time."""
        scope = _scope_of_run(None)
        if scope is not None and _is(scope.get("kernel"), kernel):
            keys, key = scope["kernel_key_cache"], scope["key"]
            if id(keys) in self._settled and not self._trials.here():
                self._settled[id(keys)][key] = True
            return self._keys.get((id(keys), key)) or Known()
        # `kernel[grid]`: a call of `fn` or `fn.warmup` returned the kernel
        function = getattr(kernel.src, "fn", None)
        for kernels, keys, *_ in list(getattr(function, "device_caches", {}).values()):
            for key, each in list(kernels.items()):
                if _is(each, kernel) and (id(keys), key) in self._keys:
                    return self._keys[id(keys), key]
        if not str(getattr(function, "__module__", "")).startswith(_GENERATED):
            self._recorder.lack(function, _COMPILED)
        return Known()

    # -- autotuners --------------------------------------------------------------------------------------------------

    def _bench_hook(self, original: Callable[..., Any]) -> Callable[..., Any]:
        trials = self._trials

        def _bench(*args: Any, **kwargs: Any) -> Any:
            with trials:
                return original(*args, **kwargs)

        return _bench

    def _tuning_hook(self, original: Callable[..., Any]) -> Callable[..., Any]:
        tuned, choose, nothing = self._tuned, self._choose, frozenset[Any]()

        def run(tuner: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(tuner, *args, **kwargs)
            if len(tuner.cache) != len(tuned.get(id(tuner), nothing)):
                choose(tuner, args, kwargs)
            return result

        return run

    def _choose(self, tuner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Record the choice for the key of a call, unless it is known."""
        try:
            # as `Autotuner.run` makes the key
            given = dict(zip(tuner.arg_names, args, strict=False)) | kwargs
            given = {name: value for name, value in given.items() if name in tuner.arg_names}
            pairs = [(name, given[name]) for name in tuner.keys if name in given]
            pairs += [(f"{name}.dtype", str(value.dtype)) for name, value in given.items() if hasattr(value, "dtype")]
            key = tuple(value for _, value in pairs)
            if id(tuner) not in self._tuned:
                self._references[id(tuner)] = weakref.ref(tuner, functools.partial(self._forget_tuner, id(tuner)))
            known = self._tuned.setdefault(id(tuner), set())
            if key in known or key not in tuner.cache:
                return
            known.add(key)
            config, function = tuner.cache[key], tuner.fn
            while hasattr(function, "fn") and not hasattr(function, "device_caches"):
                function = function.fn
            timings = getattr(tuner, "configs_timings", None) or {}
            # a simulated GPU has no times
            is_measured = config is getattr(tuner, "best_config", None) and not _is_simulated()
            timed = timings.get(config) if is_measured else None
            self._recorder.won(function, pairs, config, timed[0] if isinstance(timed, list | tuple) else timed)
        except Exception as error:  # noqa: BLE001 - the program goes on
            self._recorder.fail(error, "")

    def _forget_tuner(self, number: int, _reference: Any) -> None:
        self._references.pop(number, None)
        self._tuned.pop(number, None)


class _Trials:
    """Whether an autotuner's trials run, in any thread and in this one."""

    def __init__(self) -> None:
        self.running = 0
        self._lock = threading.Lock()
        self._local = threading.local()

    def here(self) -> bool:
        """Return whether this thread runs a trial."""
        return getattr(self._local, "depth", 0) > 0

    def __enter__(self) -> None:
        self._add(1)

    def __exit__(self, *_error: object) -> None:
        self._add(-1)

    def _add(self, change: int) -> None:
        with self._lock:
            self.running += change
        self._local.depth = getattr(self._local, "depth", 0) + change


def _is(found: Any, kernel: Any) -> bool:
    """Return whether an object of Triton's cache is a kernel, or the future that compiled it."""
    return found is kernel or getattr(found, "__dict__", {}).get("kernel") is kernel


def _scope_of_run(keys: Any) -> dict[str, Any] | None:
    """Return the local variables of the innermost call of ``JITFunction.run``; None if a hook was reached another way.

    Args:
        keys: the cache of keys that the call has; None for any.
    """
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - the grid and the arguments are nowhere else
    for _ in range(_FRAMES_MAX):
        if frame is None:
            return None
        # reading the variables of a frame copies them all
        if frame.f_code.co_name == "run" and "kernel_key_cache" in frame.f_code.co_varnames:
            scope = frame.f_locals
            return scope if keys is None or scope["kernel_key_cache"] is keys else None
        frame = frame.f_back
    return None
