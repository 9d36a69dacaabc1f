"""Import of kernel sources: by module name, by file, as a module of its package or as a script, or from a recording.

After `begin`, the process searches the project's folders in every import. Without `begin` it does so only while it
imports a source.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

from nojit.aot.plan.function_facts import SourceImportError, SourcePlace
from nojit.runtime.errors import RecordingError
from nojit.runtime.recording.closure import Closure
from nojit.runtime.recording.file import read_recording

__all__ = ["begin", "import_source", "recorded_closure"]

_INSTALLED = ("site-packages", "dist-packages")
# keyed by path and spelling: the spelling determines the name of a module outside packages
_files: dict[tuple[Path, str], ModuleType] = {}
_begun: list[SourcePlace] = []
# source closures of each recording, by digest
_recordings: dict[Path, dict[str, Closure]] = {}


def begin(place: SourcePlace) -> None:
    """Dedicate this process to one source, so that imports during compilation find the project's modules, too.

    `place`: where the kernel's source is.
    """
    _begun.append(place)


def import_source(place: SourcePlace) -> ModuleType:
    """Return the imported module of a source, which a place gives by name or by file.

    Raises:
        SourceImportError: the module or file does not exist, or its import fails.
    """
    if not place.module.endswith(".py"):
        with _project_on_path(place):
            return _imported(lambda: importlib.import_module(place.module), place.module, place)
    path = (place.folder / place.module).absolute()
    if not path.is_file():
        raise SourceImportError(
            "expected a source file: correct `source` in the manifest", got=f"no file {path}", where=place.where
        )
    key = (path.resolve(), place.module)
    if key not in _files:
        _files[key] = _import_file(path, place)
    return _files[key]


def recorded_closure(place: SourcePlace) -> Closure:
    """Return the source closure that a place names in a recording.

    `place`: the place of a recorded kernel or function.

    Raises:
        SourceImportError: the recording cannot be read, or has no such closure.
    """
    path, digest = place.folder / place.module, place.spelling.rpartition(":")[2]
    if digest not in _recordings.get(path, {}):
        try:
            _recordings[path] = read_recording(path).closures
        except RecordingError as error:
            raise SourceImportError(error.what, got=error.got, where=error.where) from error
    closure = _recordings[path].get(digest)
    if closure is None:
        what = f"expected {path} to hold the source closure {digest[:12]}: build again, since the recording changed"
        raise SourceImportError(what, where=place.where)
    return closure


def _import_file(path: Path, place: SourcePlace) -> ModuleType:
    package = _package_of(path)
    # like Python, search the script's folder, or the folder that contains the module's package
    with _project_on_path(place, path.parents[len(package)]):
        if not package:
            return _imported(lambda: _run(path, place.module), str(path), place)
        name = ".".join(package if path.name == "__init__.py" else (*package, path.stem))
        module = _imported(lambda: importlib.import_module(name), f"{path} as {name}", place)
    # an earlier import may have loaded another package of this name
    file = getattr(module, "__file__", None)
    if file is None or not path.samefile(file):
        what = f"expected {path} to be the module {name}; rename its package, because another one has this name"
        raise SourceImportError(what, got=str(file), where=place.where)
    return module


def _package_of(path: Path) -> tuple[str, ...]:
    """Return the names of the packages that contain a file, the outermost first; empty without an `__init__.py`."""
    folder = path.parent
    if not (folder / "__init__.py").is_file():
        return ()
    return (*_package_of(folder), folder.name)


def _run(path: Path, spelling: str) -> ModuleType:
    # images contain the module's name through noinline functions, so it must not depend on the manifest's folder
    name = f"nojit_source_{hashlib.sha256(spelling.encode()).hexdigest()[:16]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError("not a Python source file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _imported(run: Callable[[], ModuleType], name: str, place: SourcePlace) -> ModuleType:
    try:
        return run()
    # SystemExit: a script that calls sys.exit() must not end the build
    except (Exception, SystemExit) as error:
        got = f"{type(error).__name__}: {error}"
        if isinstance(error, ModuleNotFoundError):
            folders = ", ".join(dict.fromkeys(map(str, _project_of(place))))
            got += f" in {folders} or installed packages; build in the project's folder, or name it in PYTHONPATH"
        raise SourceImportError(f"expected to import {name}", got=got, where=place.where) from error


def _project_of(place: SourcePlace) -> tuple[Path, Path]:
    return place.folder.absolute(), place.project.absolute()


@contextlib.contextmanager
def _project_on_path(place: SourcePlace, *first: Path) -> Iterator[None]:
    """Import from `first` before anything else, and from the project's folders before installed packages.

    `place`: where the kernel's source is.
    """
    before = list(sys.path)
    new = dict.fromkeys(map(str, _project_of(place)))
    own = [folder for folder in new if folder not in before]
    installed = [number for number, entry in enumerate(before) if entry.rstrip("/").endswith(_INSTALLED)]
    at = installed[0] if installed else len(before)
    ahead = [str(folder) for folder in first if str(folder) != before[0]]
    sys.path[:] = [*ahead, *before[:at], *own, *before[at:]]
    try:
        yield
    finally:
        if not _begun:
            sys.path[:] = before
