"""The functions that launch kernels and choose configs, which the serving package sets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from nojit.runtime.base.frozen_record import Record
from nojit.runtime.errors import NojitError

__all__ = [
    "ADVICE",
    "Callbacks",
    "MissingAttributeError",
    "MissingError",
    "Recorded",
    "recorded",
    "served",
    "set_callbacks",
    "set_recorded",
    "since",
]

ADVICE: Final = "record the program where Triton is installed (nojit record), or install Triton"


class MissingError(NojitError, RuntimeError):
    """A program uses a part of Triton that the stand-in has no more than the name of.

    Attributes:
        name: the full name, such as ``triton.language.load``.
    """

    advice = ADVICE

    def __init__(self, name: str, what: str = "nojit's stand-in has no more than its name") -> None:
        self.name = name
        super().__init__(f"{name}: {what}")


class MissingAttributeError(MissingError, AttributeError):  # type: ignore[misc] # both have a name
    """A program asks for an attribute that the stand-in lacks."""


class MissingModuleError(MissingError, ModuleNotFoundError):  # type: ignore[misc] # both have a name
    """A program imports a module that the stand-in lacks."""


class Callbacks(Record):
    """The functions that the stand-in asks: see the package for what each takes and returns."""

    launch: Callable[[Any, Any, tuple[Any, ...], dict[str, Any], bool], Any]
    choose: Callable[[Any, tuple[Any, ...], list[Any], dict[str, Any]], Any]
    function_for_grid: Callable[[Any, Any], Callable[..., Any] | None] | None = None


class Recorded(Record):
    """Facts of the Triton that a recording was made with."""

    version: str = "3.9.0"
    """Its version."""
    key: str | None = None
    """Its ``triton_key()``; None if it was not recorded."""
    backend_hashes: Mapping[str, str] = MappingProxyType({})
    """The ``hash()`` of its backend by arch, such as ``sm_90``; an arch that was not recorded is missing."""


class _State:
    callbacks: Callbacks | None = None
    recorded = Recorded()


def set_callbacks(
    launch: Callable[[Any, Any, tuple[Any, ...], dict[str, Any], bool], Any] | None,
    choose: Callable[[Any, tuple[Any, ...], list[Any], dict[str, Any]], Any] | None = None,
    function_for_grid: Callable[[Any, Any], Callable[..., Any] | None] | None = None,
) -> None:
    """Let these functions launch kernels and choose configs; see the package for what each takes and returns.

    Args:
        launch: launches a function. None takes the functions away: each launch is an error again.
        choose: chooses the config of an autotuned function.
        function_for_grid: returns the callable for ``function[grid]``; None, or a None that it returns, for one that calls `launch`.

    Raises:
        ValueError: `launch` without `choose`, or `choose` without `launch`.
    """
    if (launch is None) != (choose is None):
        raise ValueError("expected both launch and choose, or neither: pass the two together")
    _State.callbacks = (
        Callbacks(launch, choose, function_for_grid) if launch is not None and choose is not None else None
    )


def served(name: str) -> Callbacks:
    """Return the functions that are set.

    Args:
        name: the kernel that a program launches.

    Raises:
        MissingError: none are set.
    """
    if _State.callbacks is None:
        raise MissingError(name, "nothing launches it: no bundle is served").advise(
            "call nojit.serve(...) before the launch, or set NOJIT_SERVE"
        )
    return _State.callbacks


def set_recorded(facts: Recorded) -> None:
    """Set the facts of Triton that the stand-in tells: before a program imports ``triton``."""
    _State.recorded = facts


def recorded() -> Recorded:
    """Return the facts of Triton that the stand-in tells."""
    return _State.recorded


def since(version: str) -> bool:
    """Say whether the recorded Triton is at least of a version: an older one lacks some of the newest one's rules."""
    numbers = [[int(part) for part in text.split(".")[:2]] for text in (_State.recorded.version, version)]
    return numbers[0] >= numbers[1]
