"""Python functions that the compiler reads: their source, digest and scope, and the params of ``@triton.jit`` functions."""

from __future__ import annotations

import ast
import hashlib
import inspect
import re
import textwrap
from functools import cached_property
from typing import Any, Final

from nojit.runtime.serve.standin.constants import ConstexprType
from nojit.runtime.serve.standin.dtypes import DType, PointerType
from nojit.runtime.serve.standin.registry import export, exported
from nojit.runtime.serve.standin.type_names import CANONICAL

__all__ = ["JITCallable", "KernelParam"]

_DEF: Final = re.compile(r"^def\s+\w+\s*\(", re.MULTILINE)


def _annotation(given: Any) -> str:
    """Return the name of an annotation as Triton spells it: ``*fp32`` for a pointer, ``constexpr``."""
    if isinstance(given, str):
        text = given.strip()
        if text.startswith("const "):
            return f"*k{_annotation(text.removeprefix('const'))[1:]}"
        if text.endswith("*"):
            return f"*{_annotation(text[:-1])}"
        if text.startswith("*"):
            return f"*{_annotation(text[1:])}"
        if text.startswith("tl."):
            return _annotation(text.removeprefix("tl."))
    elif isinstance(given, PointerType):
        return f"*{_annotation(given.element_ty)}"
    elif isinstance(given, DType):
        text = given.name
    else:
        text = given.__name__ if isinstance(given, type) else str(given)
    return CANONICAL.get(text.replace("_t", ""), text)


@exported("triton.runtime.jit")
class KernelParam:
    """A param of a ``@triton.jit`` function."""

    def __init__(
        self, num: int, param: inspect.Parameter, do_not_specialize: bool, do_not_specialize_on_alignment: bool
    ) -> None:
        self.num = num
        self._param = param
        self.do_not_specialize = do_not_specialize
        self.do_not_specialize_on_alignment = do_not_specialize_on_alignment

    @property
    def name(self) -> str:
        """The param's name."""
        return self._param.name

    @cached_property
    def annotation(self) -> str:
        """The annotation as Triton spells it; empty if there is none."""
        given = self._param.annotation
        return "" if given is inspect.Parameter.empty or not given else _annotation(given)

    @cached_property
    def annotation_type(self) -> str:
        """The annotation, if it is a type; else empty."""
        element = (
            self.annotation.removeprefix("*").removeprefix("k") if self.annotation.startswith("*") else self.annotation
        )
        return self.annotation if element in CANONICAL.values() else ""

    @cached_property
    def is_constexpr(self) -> bool:
        """Whether the value is compiled in."""
        return "constexpr" in self.annotation

    @cached_property
    def is_const(self) -> bool:
        """Whether this is a pointer to constants."""
        return not self.is_constexpr and ("const" in self.annotation or self.annotation.startswith("*k"))

    @property
    def default(self) -> Any:
        """The default."""
        return self._param.default

    @property
    def has_default(self) -> bool:
        """Whether there is a default."""
        return self._param.default is not inspect.Parameter.empty


@exported("triton.runtime.jit")
class JITCallable:
    """A function of Triton's language; its source is read when it is asked for.

    Args:
        fn: the Python function.
    """

    def __init__(self, fn: Any) -> None:
        self.fn = fn
        self.signature = inspect.signature(fn)
        self.hash: str | None = None
        self.used_global_vals: dict[Any, Any] = {}
        self._fn_name = f"{fn.__module__}.{fn.__qualname__}"
        self.__doc__ = fn.__doc__
        self.__name__ = fn.__name__
        self.__qualname__ = fn.__qualname__
        self.__globals__ = fn.__globals__
        self.__module__ = fn.__module__

    @property
    def _source(self) -> tuple[list[str], int]:
        try:
            return inspect.getsourcelines(self.fn)
        except OSError as error:
            raise ValueError("@jit functions should be defined in a Python file") from error

    @property
    def raw_src(self) -> list[str]:
        """The lines of the source, with decorators."""
        return self._source[0]

    @property
    def starting_line_number(self) -> int:
        """The line of the first decorator."""
        return self._source[1]

    @property
    def file_name(self) -> str:
        """The file of the source."""
        return str(self.fn.__code__.co_filename)

    @property
    def def_file_line_number(self) -> int:
        """The line of ``def``."""
        before = (place for place, line in enumerate(self.raw_src) if line.strip().startswith("def "))
        return self.starting_line_number + next(before, 0)

    @property
    def def_file_col_number(self) -> int:
        """The column of ``def``, from 1."""
        line = next((each for each in self.raw_src if each.lstrip().startswith("def ")), "")
        return len(line) - len(line.lstrip()) + 1

    @cached_property
    def _src(self) -> str:
        text = textwrap.dedent("".join(self.raw_src))
        found = _DEF.search(text)
        if found is None:
            raise ValueError("No function definition found for kernel")
        return text[found.start() :]

    @property
    def src(self) -> str:
        """The source, from ``def`` on."""
        return self._src

    @src.setter
    def src(self, given: str) -> None:
        raise AttributeError(
            f"cannot set src of {self._fn_name}: call _unsafe_update_src, and clear the hash of all callers"
        )

    def _unsafe_update_src(self, new_src: str) -> None:
        self.hash = None
        self.__dict__["_src"] = new_src

    @property
    def cache_key(self) -> str:
        """A digest of the function's source and of those that it names: not the one that Triton computes."""
        if self.hash is None:
            self.hash = f"recursion:{self._fn_name}"
            named = self.get_capture_scope()
            reached = [named[name] for name in self.fn.__code__.co_names if name in named]
            parts = [self.src, str(self.starting_line_number)]
            parts += [each.cache_key for each in reached if isinstance(each, JITCallable) and each is not self]
            self.hash = hashlib.sha256("\0".join(parts).encode()).hexdigest()
        return self.hash

    def get_capture_scope(self) -> dict[str, Any]:
        """Return the names that the function sees: globals, and those of enclosing functions."""
        cells = self.fn.__closure__ or ()
        nonlocals = {}
        for name, cell in zip(self.fn.__code__.co_freevars, cells, strict=True):
            try:
                nonlocals[name] = cell.cell_contents
            except ValueError:
                # the enclosing function has not set it yet
                continue
        return {**self.__globals__, **nonlocals}

    def parse(self) -> ast.Module:
        """Return the syntax tree of the source."""
        return ast.parse(self.src)

    @property
    def type(self) -> ConstexprType:
        """The type of the function as a constexpr."""
        return ConstexprType(self)


export("triton.runtime.jit", _normalize_ty=_annotation)
