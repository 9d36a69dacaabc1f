"""Triton's errors: programs catch them, and some raise them."""

from __future__ import annotations

from typing import Any

from nojit.runtime.serve.standin.registry import exported

__all__ = ["AutotunerError", "CompilationError", "InterpreterError", "OutOfResourcesError", "PTXASError", "TritonError"]


@exported("triton.errors")
class TritonError(Exception):
    """Base of Triton's errors."""


class _WithMessageError(TritonError):
    prefix = ""

    def __init__(self, error_message: str | None = None) -> None:
        super().__init__(error_message)
        self.error_message = error_message

    def __str__(self) -> str:
        return f"{self.prefix}{self.error_message or ''}"


@exported("triton.runtime.errors")
class InterpreterError(_WithMessageError):
    """Triton's interpreter failed."""


@exported("triton.runtime.errors")
class PTXASError(_WithMessageError):
    """Ptxas failed."""

    prefix = "PTXAS error: "


@exported("triton.runtime.errors")
class AutotunerError(_WithMessageError):
    """An autotuner has no config left."""

    prefix = "Autotuner error: "


@exported("triton.runtime.errors", "OutOfResources")
class OutOfResourcesError(TritonError):
    """A kernel needs more of a resource than the GPU has."""

    def __init__(self, required: Any, limit: Any, name: str) -> None:
        super().__init__(required, limit, name)
        self.required, self.limit, self.name = required, limit, name

    def __str__(self) -> str:
        return (
            f"out of resource: {self.name}, Required: {self.required}, Hardware limit: {self.limit}. "
            "Reducing block sizes or `num_stages` may help."
        )


@exported("triton.compiler.errors")
class CompilationError(TritonError):
    """A kernel's source could not be compiled."""

    source_line_count_max_in_message = 12

    def __init__(self, src: str | None, node: Any, error_message: str | None = None) -> None:
        super().__init__(src, node, error_message)
        self.src, self.node, self.error_message = src, node, error_message
        self.message = self._message()

    def _message(self) -> str:
        line, column = getattr(self.node, "lineno", None), getattr(self.node, "col_offset", 0)
        lines = (self.src or "").split("\n")[: line or 0][-self.source_line_count_max_in_message :]
        place = f"at {line}:{column}:\n" if line is not None else ""
        shown = (
            "\n".join([*lines, " " * column + "^"])
            if lines and line is not None
            else self.src or " <source unavailable>"
        )
        return place + shown + (f"\n{self.error_message}" if self.error_message else "")

    def __str__(self) -> str:
        return self.message


@exported("triton.compiler.errors", "CompileTimeAssertionFailure")
class CompileTimeAssertionFailureError(CompilationError):
    """A ``tl.static_assert`` failed."""


@exported("triton.compiler.errors", "UnsupportedLanguageConstruct")
class UnsupportedLanguageConstructError(CompilationError):
    """Triton's language lacks a construct of Python's."""
