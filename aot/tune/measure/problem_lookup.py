"""Look-up of tuning problems by name: a family, module or file, with an optional use such as ``held_out``."""

from __future__ import annotations

import importlib
import importlib.util
import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from nojit.aot.tune.measure.events import Listed
from nojit.runtime.base.suggestions import did_you_mean
from nojit.runtime.errors import NojitError

__all__ = ["FoundProblem", "find_problems", "of_kernels"]

_FAMILY = "nojit.kernels.{}.problems"


@dataclass(frozen=True, slots=True)
class FoundProblem:
    """A problem that a function `problems(use)` returned, and the roles of its kernel's constexprs."""

    listed: Listed
    problem: Any
    """A ``nojit.kernels.problem.TuningProblem``."""
    roles: dict[str, tuple[str, ...]]
    """Constexprs of the kernel by role: ``tunables``, ``numerics``, ``semantics``."""


def find_problems(names: Iterable[str]) -> tuple[FoundProblem, ...]:
    """Load the problems of ``flash_attention``, ``some.module:held_out`` or ``path/to/file.py:bars``, without duplicates.

    Raises:
        NojitError: the module does not exist, or has no problems of that use.
    """
    found: dict[tuple[str, ...], FoundProblem] = {}
    for name in names:
        place, _, use = name.partition(":")
        module = _module(place)
        if not hasattr(module, "problems"):
            raise NojitError("expected a module that defines problems(use)", got="one without it", where=place)
        try:
            problems = module.problems(use or "tune")
        except ValueError as error:
            raise NojitError(str(error), where=name) from None
        for problem in problems:
            one = _found(module, problem, use or "tune")
            found.setdefault((one.listed.kernel, one.listed.use, one.listed.name, one.listed.dtype), one)
    return tuple(found.values())


def of_kernels(found: Sequence[FoundProblem], kernels: Sequence[str]) -> list[FoundProblem]:
    """Return the problems of the named kernels; all problems if `kernels` is empty.

    Raises:
        NojitError: a named kernel has no problem.
    """
    known = tuple(dict.fromkeys(one.listed.kernel for one in found))
    for name in kernels:
        if name not in known:
            what = f"expected a kernel that has problems ({', '.join(known)})"
            raise NojitError(what, got=f"{name!r}{did_you_mean(name, known)}", where="--kernel")
    return [one for one in found if not kernels or one.listed.kernel in kernels]


def _module(place: str) -> ModuleType:
    if place.endswith(".py"):
        return _file(Path(place))
    what = "expected a family of kernels, a module or a file of problems (*.py)"
    if not all(part.isidentifier() for part in place.split(".")):
        raise NojitError(what, got=repr(place), where="--problems")
    name = place if "." in place else _FAMILY.format(place)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise NojitError(what, got=f"{place!r}: no module {error.name}", where="--problems") from None


def _file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"nojit_problems_{path.stem}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise NojitError("expected a Python file that defines problems(use)", got="no such file", where=str(path))
    module = importlib.util.module_from_spec(spec)
    # dataclasses look up their module in sys.modules
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _weight(problem: Any) -> float:
    weight = getattr(problem, "weight", 1.0)
    if type(weight) not in (int, float) or not 0 < weight < math.inf:
        where = f"problem {problem.name!r} of kernel {problem.kernel}"
        raise NojitError("expected a weight above 0", got=repr(weight), where=where)
    return float(weight)


def _found(module: ModuleType, problem: Any, use: str) -> FoundProblem:
    listed = Listed(
        kernel=problem.kernel,
        name=problem.name,
        use=use,
        shape_class=problem.shape_class,
        dtype=problem.dtype,
        sizes=dict(problem.sizes),
        weight=_weight(problem),
    )
    roles = getattr(module, "ROLES", {}).get(problem.kernel)
    kinds = ("tunables", "numerics", "semantics")
    return FoundProblem(listed, problem, {kind: tuple(getattr(roles, kind)) for kind in kinds} if roles else {})
