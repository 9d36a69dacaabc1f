"""The names of every module of Triton, as the stand-in package lists them.

    python -m tests.support.triton_names [FOLDER...]

Writes `runtime/serve/standin/names.json` from the installed Triton. Each folder holds another version of Triton, as ``pip install
--target`` makes it: the file keeps, for each of them, the difference to the installed one. The file holds names, kinds and params,
and no code.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import pkgutil
import subprocess
import sys
import warnings
from contextvars import ContextVar
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "runtime/serve/standin/names.json"
# modules that no host program means: Triton's own tests, its compiler's parts and tools
SKIPPED = (
    "triton._compile_warmup",
    "triton._C",
    "triton._filecheck",
    "triton._test_runner",
    "triton.experimental.gsan",
    "triton.instrumentation",
    "triton.profiler.viewer",
    "triton.tools.build_extern",
    "triton.tools.gsan",
    "triton.tools.triton_to_gluon_translator",
)
PLAIN = (bool, int, float, str, type(None))
Names = dict[str, dict[str, Any]]


def modules() -> list[ModuleType]:
    """Import every module of the Triton that Python finds, except those that fail or that no host program means."""
    import triton

    found = [triton]
    for each in pkgutil.walk_packages(triton.__path__, "triton.", onerror=lambda name: None):
        if not each.name.startswith(SKIPPED) and not each.name.endswith("__main__"):
            try:
                found.append(importlib.import_module(each.name))
            except Exception:  # noqa: BLE001 - some ask for a GPU
                continue
    return found


def names() -> Names:
    """Describe the names of every module."""
    return {module.__name__: names_of(module) for module in modules()}


def names_of(module: ModuleType) -> dict[str, Any]:
    """Describe the names of a module: all that are Triton's, or plain values."""
    found = {name: described(module, name, value) for name, value in sorted(vars(module).items())}
    kept = {name: what for name, what in found.items() if what is not None and not name.startswith("__")}
    if "__all__" in vars(module):
        kept["__all__"] = {"value": list(module.__all__)}
    if hasattr(module, "__path__"):
        kept["__path__"] = {"value": []}
    return kept


def described(module: ModuleType, name: str, value: Any) -> Any:
    """Describe one name; None if it is no name of Triton's."""
    if isinstance(value, ModuleType):
        own = value.__name__.startswith("triton") and not value.__name__.startswith(SKIPPED)
        # a submodule is found without an entry
        return f"={value.__name__}" if own and value.__name__ != f"{module.__name__}.{name}" else None
    if isinstance(value, PLAIN):
        # a path is the machine's
        return "o" if isinstance(value, str) and "/" in value else {"value": value}
    if isinstance(value, dict | list | tuple | set | frozenset | ContextVar):
        return "o"
    home = getattr(value, "__module__", None)
    home = home if isinstance(home, str) else type(value).__module__
    if not home.startswith("triton"):
        return "o" if type(value).__module__.startswith("triton") else None
    spelled = next((each for each in (getattr(value, "__name__", None), name) if here(home, each) is value), None)
    if home != module.__name__ and spelled is not None and not home.startswith(SKIPPED):
        return f"={home}:{spelled}"
    return of_kind(value)


def here(home: str, name: Any) -> Any:
    return getattr(sys.modules.get(home), name, None) if isinstance(name, str) else None


def of_kind(value: Any) -> Any:
    if isinstance(value, type):
        return of_class(value)
    kind = type(value).__name__
    if kind in {"JITFunction", "GluonJITFunction"}:
        return "j" + params(value.fn)
    if kind == "ConstexprFunction":
        return "k" + params(value.fn)
    if isinstance(value, FunctionType):
        return ("b" if getattr(value, "__triton_builtin__", False) else "f") + params(value)
    return "o"


def of_class(value: type) -> Any:
    # an enum of Python's, or one of pybind11's
    if hasattr(value, "__members__"):
        return {"enum": {name: getattr(each, "value", 0) for name, each in value.__members__.items()}}
    bases = [f"{base.__module__}:{base.__qualname__}" for base in value.__bases__]
    kept = [each for each in bases if each.startswith(("triton", "builtins:")) and each != "builtins:object"]
    return {"class": kept, "has": sorted(name for name in vars(value) if not name.startswith("__"))}


def params(function: Any) -> str:
    """List the params of a function: ``(x, y=, *, z=)``."""
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return ""
    shown, star = [], False
    for each in found:
        if each.kind is each.VAR_POSITIONAL:
            star = True
        if each.kind is each.KEYWORD_ONLY and not star:
            star = True
            shown.append("*")
        mark = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "")
        shown.append(mark + each.name + ("=" if each.default is not each.empty else ""))
    return f"({', '.join(shown)})"


def difference(base: Names, other: Names) -> dict[str, Any]:
    """Say what `other` lacks of `base`, and what it has beside or otherwise."""
    lacks = {
        module: "*" if module not in other else sorted(set(base[module]) - set(other[module]))
        for module in base
        if module not in other or set(base[module]) - set(other[module])
    }
    has = {
        module: kept
        for module, given in other.items()
        if (kept := {name: what for name, what in given.items() if base.get(module, {}).get(name, ()) != what})
    }
    return {"lacks": lacks, "has": has}


def other(folder: str) -> tuple[str, Names]:
    """Read the version and the names of the Triton in a folder, in a process of its own."""
    script = "import json, sys, triton; from tests.support import triton_names as t; print(json.dumps([triton.__version__, t.names()]))"
    env = {**os.environ, "PYTHONPATH": f"{folder}:{ROOT}"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script], env=env, cwd=ROOT, check=True, capture_output=True, text=True
    )
    version, found = json.loads(done.stdout.splitlines()[-1])
    return minor(version), found


def minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def main() -> None:
    """Write the file."""
    import triton

    warnings.simplefilter("ignore")
    base = json.loads(json.dumps(names()))
    older = {version: difference(base, found) for version, found in sorted(map(other, sys.argv[1:]))}
    table = {"version": minor(triton.__version__), "names": base, "others": older}
    FILE.write_text(json.dumps(table, separators=(",", ":"), sort_keys=True).replace('},"triton', '},\n"triton') + "\n")


if __name__ == "__main__":
    main()
