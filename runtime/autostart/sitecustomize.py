"""Start nojit in this process as the environment asks, then run the ``sitecustomize`` that this module hides.

Python imports this module when it starts: as ``sitecustomize`` from a folder of ``PYTHONPATH``, or as ``nojit_autoserve``, the copy in
the distribution nojit-autoserve, whose ``.pth`` file asks for it. It imports nothing of nojit before the program imports Triton, and
without its variables it does nothing.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    # slow to import
    from collections.abc import Callable
    from typing import Any

# by variable: what to call once a module is imported. Inductor's module imports Triton before its own end
_STARTS = {
    "NOJIT_RECORD": {
        "triton": "nojit.runtime.recording.session:start",
        "torch._inductor.runtime.triton_heuristics": "nojit.runtime.recording.session:follow_generated",
    },
    # a program asks torch for GPUs before it imports Triton
    "NOJIT_RECORD_FAKE": {"torch": "nojit.runtime.recording.session:start"},
    "NOJIT_SERVE": {"triton": "nojit.runtime.serve.session:start"},
}
# a program goes on without these, but not without a server: it would compile what the server forbids
_OPTIONAL = ("NOJIT_RECORD", "NOJIT_RECORD_FAKE")
# variables that name paths: a child may start in another folder
_PATHS = ("NOJIT_RECORD", "NOJIT_SERVE")
# in `sys.modules`, the module that follows the variables in this process: Python may import both
_NAME = "nojit_autoserve"


def when_imported(
    name: str, then: Callable[[], object], absent: Callable[[], object] | None = None
) -> Callable[[], object]:
    """Call a function once a module is imported: now, or at the end of its import. Returns a function that forgets it.

    If the function raises an error, the import fails with it, and so does each later import until the function returns.

    Args:
        name: full name of the module.
        then: is called without arguments.
        absent: is called instead when a program asks for the module and it is not installed. It may install a finder for it.
    """
    if name in sys.modules:
        then()
        return lambda: None
    waiting = _Waiting(name, then, absent)
    sys.meta_path.insert(0, waiting)
    return waiting.leave


class _Waiting:
    """Finder that waits for the import of one module, lets the other finders find it, and leaves at its end."""

    def __init__(self, name: str, then: Callable[[], object], absent: Callable[[], object] | None) -> None:
        self._name = name
        self._then = then
        self._absent = absent
        self._asks = False

    def leave(self) -> bool:
        """Wait no longer; return whether it still waited."""
        finders: list[Any] = sys.meta_path
        waited = self in finders
        if waited:
            finders.remove(self)
        return waited

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Return what the other finders find, after a look at its loader if it is the module."""
        # `absent` may look for the module itself
        if name != self._name or self._asks:
            return None
        # those behind it alone: another one may wait for the same module
        finders: list[Any] = sys.meta_path[sys.meta_path.index(self) + 1 :]
        found = next((spec for finder in finders if (spec := finder.find_spec(name, path, target))), None)
        loader = getattr(found, "loader", None)
        if loader is not None:
            self._follow(loader)
        elif self._absent is not None:
            self._asks = True
            try:
                self._absent()
            finally:
                self._asks = False
            self.leave()
            return next((spec for finder in [*sys.meta_path] if (spec := finder.find_spec(name, path, target))), found)
        return found

    def _follow(self, loader: Any) -> None:
        execute = loader.exec_module

        def exec_module(module: object) -> None:
            vars(loader).pop("exec_module", None)
            execute(module)
            if self in sys.meta_path:
                self._then()
                self.leave()

        loader.exec_module = exec_module


def _call(variable: str, place: str) -> None:
    """Import and call ``module:function``; if a program goes on without it, a failure is one line."""
    import importlib

    module, _, function = place.partition(":")
    try:
        getattr(importlib.import_module(module), function)()
    except Exception as error:
        if variable not in _OPTIONAL:
            raise
        if sys.stderr is not None:
            sys.stderr.write(f"nojit: expected to follow {variable}, got {type(error).__name__}: {error}\n")


def _wait() -> None:
    for variable in _PATHS:
        if os.environ.get(variable):
            os.environ[variable] = _absolute(variable, os.environ[variable])
    for variable, starts in _STARTS.items():
        if os.environ.get(variable):
            for name, place in starts.items():
                call = lambda variable=variable, place=place: _call(variable, place)  # noqa: E731
                when_imported(name, call, None if variable in _OPTIONAL else call)


def _absolute(variable: str, value: str) -> str:
    """Return a variable's value with absolute paths. ``NOJIT_SERVE`` is a list, and names of installed bundles in it stay."""
    if variable != "NOJIT_SERVE":
        return _full(value)
    return os.pathsep.join(
        _full(each) if os.sep in each or os.path.exists(each) else each  # noqa: PTH110 - pathlib is slow
        for each in value.split(os.pathsep)
        if each
    )


def _full(path: str) -> str:
    """Return an absolute path; the path itself if the working directory was deleted, because Python must start."""
    try:
        return os.path.abspath(path)  # noqa: PTH100 - pathlib is slow
    except OSError:
        return path


def _run_hidden() -> None:
    """Run the next module of this name in Python's search path."""
    # importlib's own names for these are modules that Python would have to load
    import _frozen_importlib
    import _frozen_importlib_external

    here = os.path.dirname(_full(__file__))  # noqa: PTH120 - pathlib is slow
    rest = [each for each in sys.path if _full(each) != here]
    spec = _frozen_importlib_external.PathFinder.find_spec("sitecustomize", rest)
    if spec is not None and spec.loader is not None:
        module = _frozen_importlib.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if __name__ == "sitecustomize":
    if _NAME not in sys.modules:
        # a .pth file that is read later finds it
        sys.modules[_NAME] = sys.modules[__name__]
        _wait()
    _run_hidden()
elif __name__ == _NAME:
    _wait()
