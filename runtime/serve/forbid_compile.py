"""Make compiling impossible: each function of Triton that compiles, or starts a compiler, raises an error with its name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any

from nojit.runtime.errors import CompileError

__all__ = ["Guards", "refuse"]


def refuse(name: str) -> None:
    """Refuse a compilation.

    Args:
        name: the function that was called.

    Raises:
        CompileError: always.
    """
    what = (
        f"{name} was called, and a process that is served with NOJIT_MISS=error compiles nothing: record what it launches "
        "and build it, or set NOJIT_MISS=jit"
    )
    raise CompileError(what, where=name)


class Guards:
    """Functions whose code was replaced, so that every name that a program holds of them refuses."""

    def __init__(self) -> None:
        self._replaced: list[tuple[FunctionType, CodeType]] = []

    def install(self) -> None:
        """Refuse every compilation of the imported Triton."""
        found = list(_compilers())
        for name, function in found:
            if function.__code__.co_freevars:
                raise RuntimeError(f"expected {name} to be a function without captured names")
        for name, function in found:
            self._replaced.append((function, function.__code__))
            function.__code__ = _refusal(name)

    def remove(self) -> None:
        """Allow compilations again."""
        for function, code in reversed(self._replaced):
            function.__code__ = code
        self._replaced.clear()


def _compilers() -> Iterator[tuple[str, FunctionType]]:
    from triton.backends import backends
    from triton.compiler import compiler
    from triton.runtime import build, jit

    yield from _functions("triton.compile", compiler.compile)
    yield from _functions("triton.JITFunction._do_compile", jit.JITFunction._do_compile)  # noqa: SLF001 - Triton's
    yield from _functions("triton.compiler.ASTSource", compiler.ASTSource.__init__)
    yield from _functions("triton.compiler.IRSource", compiler.IRSource.__init__)
    # gcc, for the C that Triton's driver and launchers need
    yield from _functions("triton.runtime.build._build", getattr(build, "_build", None))
    for backend in backends.values():
        for stage in ("make_ttir", "make_llir", "make_ptx", "make_cubin"):
            name = "ptxas" if stage == "make_cubin" else f"triton.{backend.compiler.__name__}.{stage}"
            yield from _functions(name, vars(backend.compiler).get(stage))


def _functions(name: str, value: Any) -> Iterator[tuple[str, FunctionType]]:
    function: Callable[..., Any] | None = getattr(value, "__func__", value)
    if isinstance(function, FunctionType):
        yield name, function


def _refusal(name: str) -> CodeType:
    """Return code that refuses. It imports what it needs, since it runs with another module's globals."""
    scope: dict[str, Any] = {}
    text = f"def refusal(*args, **kwargs):\n    from {__name__} import refuse\n    refuse({name!r})\n"
    exec(compile(text, f"<{__name__}>", "exec"), scope)  # noqa: S102 - the text is ours
    code: CodeType = scope["refusal"].__code__
    return code
