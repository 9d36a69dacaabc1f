"""Run a call through Triton's JIT with the settings of a variant: config, derived constexprs, grid and types.

Numbers get the types that variants declare for them, if they fit. A number becomes a constant only if it is one in a variant,
because kernels rely on both.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import cache, partial
from types import FunctionType
from typing import Any, TypeAlias

from nojit.runtime import _core
from nojit.runtime.base.caller_warning import warn_caller
from nojit.runtime.base.frozen_record import Record
from nojit.runtime.base.launch_options import TOOLCHAIN
from nojit.runtime.base.wording import shown
from nojit.runtime.call.call_facts import Argument, CallFacts, accepts, natural_type
from nojit.runtime.errors import ArgumentError, NoMatchingVariantError
from nojit.runtime.explain.refusals import check_names
from nojit.runtime.expr import expression as expr
from nojit.runtime.fallback.jit_configs import (
    BuiltConfig,
    defaults_of,
    first_runnable,
    nearest_configs,
    specialization_of,
    value_of,
)
from nojit.runtime.fallback.jit_functions import UnavailableError, function_of, load, load_named
from nojit.runtime.fallback.policy import MissWarning, policy
from nojit.runtime.table.table import KernelTable
from nojit.runtime.target import PDL_SINCE
from nojit.runtime.types.names import NONE, descriptor_parts, is_descriptor, is_tuple, members
from nojit.runtime.values import DType, FunctionRef

__all__ = ["Described", "JitFallback", "MissedCall"]

Described: TypeAlias = tuple[str, KernelTable, CallFacts]
"""The bundle, its variants and the facts of a call that none of them matches."""
Grid: TypeAlias = "tuple[int, ...] | Callable[[dict[str, Any]], Any] | None"


class MissedCall(Record):
    """A call, as the binding passes it on."""

    device: int
    given: Mapping[str, Any]
    """Arguments and options of the caller by name, and ``stream``."""
    grid: Grid
    """The caller's grid; None for the bundle's."""


class JitFallback:
    """Runs missed calls of one kernel through Triton's JIT. Safe to use from several threads."""

    def __init__(self) -> None:
        self._configs: dict[Hashable, tuple[BuiltConfig, ...]] = {}

    def knows(self, call: CallFacts) -> bool:
        """Return whether a call of this specialization has run before."""
        return specialization_of(call) in self._configs

    def take(self, miss: NoMatchingVariantError, missed: MissedCall, describe: Callable[[], Described]) -> None:
        """Run a call; if that is impossible, raise the error of the miss with the reason.

        Args:
            miss: the error.
            missed: the call.
            describe: returns the bundle, and the variants and facts of the call.

        Raises:
            NoMatchingVariantError: the JIT cannot run the call.
            ArgumentError: neither the call nor the bundle has a grid, or it cannot be computed.
        """
        try:
            bundle, table, call = describe()
            function = function_of(table.kernel, bundle)
            self._launch(function, table, call, missed, partial(_warn, miss, table.kernel, function))
        except UnavailableError as why:
            what = f"{miss.what}; the JIT cannot make the call: {why}"
            raise NoMatchingVariantError(what, got=miss.got, where=miss.where, reasons=miss.reasons) from why

    def _launch(
        self, function: Any, table: KernelTable, call: CallFacts, missed: MissedCall, first: Callable[[], None]
    ) -> None:
        check_names(table, call)
        _check_params(function, table)
        kind = specialization_of(call)
        configs = self._configs.get(kind)
        known = configs or nearest_configs(table, call)
        built, names, derived = first_runnable(known, table, call)
        constexprs = {**dict(built.config.constexprs), **derived, **call.constexprs}
        options = {**built.flags, **dict(built.config.options), **call.options}
        # the JIT has one toolchain: the program's own
        options.pop(TOOLCHAIN, None)
        if (call.arch or 0) < PDL_SINCE:
            options.pop("launch_pdl", None)
        # the caller's constexprs, with dtypes in Triton's form
        settings = {
            name: value if isinstance(value, DType) else missed.given.get(name, value)
            for name, value in (constexprs | options).items()
        }
        grid = _grid_of(table, names, missed, settings)
        named = _arguments(function, call, missed.given, built)
        # Triton chooses options that are None
        named |= {
            name: _to_triton(value, load if name in missed.given else load_named)
            for name, value in settings.items()
            if name in constexprs or value is not None
        }
        typed = _typed(function, *_as_built(table, call))
        with _current(missed.device, missed.given.get("stream")):
            if self._configs.setdefault(kind, known) is known and configs is None:
                self._begin(kind, first)
            if 0 not in grid:
                positional = _positional(table, named)
                typed[grid](*positional, **named)

    def _begin(self, kind: Hashable, first: Callable[[], None]) -> None:
        try:
            first()
        except BaseException:
            # raises if warnings are errors
            self._configs.pop(kind, None)
            raise


def _positional(table: KernelTable, named: dict[str, Any]) -> list[Any]:
    """Take the arguments that must be positional out of a call: with ``*args``, these and all before them."""
    names = [param.name for param in table.params]
    rest = next((place for place, param in enumerate(table.params) if param.is_rest), None)
    if rest is None:
        return []
    return [*[named.pop(name) for name in names[:rest]], *named.pop(names[rest])]


def _warn(miss: NoMatchingVariantError, kernel: str, function: Any) -> None:
    if policy() == "warn":
        made_by = f"Triton compiles {function.__module__}:{getattr(function, '__name__', kernel)} for it"
        warn_caller(f"kernel {kernel}: {miss.what}; {made_by}", MissWarning)


def _check_params(function: Any, table: KernelTable) -> None:
    names = getattr(function, "arg_names", None)
    built = [param.name for param in table.params]
    if names is not None and list(names) != built:
        raise UnavailableError(
            f"the registered function has the params {', '.join(names)}, and the bundle's kernel has {', '.join(built)}: "
            "register the function that was built, or build again with nojit build"
        )
    if "stream" in built:
        raise UnavailableError("Triton cannot launch a kernel with a param named stream: rename it and build again")


# -- arguments --


def _arguments(function: Any, call: CallFacts, given: Mapping[str, Any], built: BuiltConfig) -> dict[str, Any]:
    """Return the runtime arguments in Triton's form."""
    gluon = "gluon" in type(function).__module__
    return {
        name: _argument(name, given[name], argument, built.types[name] if built.has_constexprs else "", gluon)
        for name, argument in call.arguments.items()
    }


def _argument(name: str, given: Any, argument: Argument, kind: str, gluon: bool) -> Any:
    if argument.kind == "tuple":
        kinds = members(kind) if is_tuple(kind) else []
        kinds += [""] * (len(argument.items) - len(kinds))
        items = [
            _argument(f"{name}.{place}", *item, gluon)
            for place, item in enumerate(zip(given, argument.items, kinds, strict=False))
        ]
        return type(given)(*items) if hasattr(given, "_fields") else tuple(items)
    if argument.kind == "descriptor":
        return _descriptor(name, given, argument, kind, gluon)
    if argument.kind == "pointer" and not hasattr(given, "data_ptr"):
        raise UnavailableError(f"{name} is not a tensor with data_ptr(), which Triton needs: pass a torch tensor")
    # type numbers as the kernel's params declare, because Triton takes the type from the argument
    return argument.value if argument.kind in ("int", "float", "bool") else given


def _descriptor(name: str, given: Any, argument: Argument, kind: str, gluon: bool) -> Any:
    """Return a descriptor for Triton, or for Gluon with the default layout of its block."""
    if type(given).__module__.startswith("triton."):
        return given
    geometry = getattr(given, "geometry", None)
    if geometry is not None and (geometry.box, geometry.steps) != (None, None):
        raise UnavailableError(
            f"{name} sets the box of a copy, which Triton's descriptors cannot: build a variant for the call"
        )
    block = argument.value if isinstance(argument.value, tuple) else ()
    if 0 in block:
        built = descriptor_parts(kind)[1] if is_descriptor(kind) else ()
        if len(built) != len(block):
            raise UnavailableError(
                f"{name} has no block_shape, and no config built for this call sets one; pass block_shape"
            )
        block = built
    facts = (given.base, list(given.shape), list(given.strides), list(block))
    extras = {"padding": getattr(given, "padding", "zero")}
    # older versions lack this parameter
    if getattr(given, "round_f32_to_tf32", False):
        extras["round_f32_to_tf32"] = True
    if gluon:
        from triton.experimental.gluon.language import NVMMASharedLayout  # only here, where Triton is
        from triton.experimental.gluon.nvidia import hopper
        from triton.language import dtype

        element = re.sub(r"^(u?)i?(\d)", r"\1int\2", argument.dtype)
        layout = NVMMASharedLayout.get_default_for(list(block), dtype(element))
        return hopper.TensorDescriptor(*facts, layout, **extras)
    from triton.tools.tensor_descriptor import TensorDescriptor

    return TensorDescriptor(*facts, **extras)


def _to_triton(value: Any, find: Callable[[str], Any]) -> Any:
    """Return a constexpr in Triton's form.

    Args:
        value: the value of a bundle, or of the caller.
        find: imports a function by its place; the caller may name any, a bundle only those of registered sources.
    """
    if isinstance(value, DType):
        from triton.language import dtype  # only here, where Triton is

        return dtype(value.name)
    if isinstance(value, FunctionRef):
        return find(value.name)
    return tuple(_to_triton(item, find) for item in value) if isinstance(value, tuple) else value


# -- types --


def _as_built(table: KernelTable, call: CallFacts) -> tuple[tuple[tuple[str, str], ...], frozenset[str]]:
    """Return numbers whose declared type differs from Triton's, with that type, and ints that no variant has hints for."""
    hinted = {hint for hints in table.hint_sets for hint in hints}
    types, plain = [], set()
    for name, kinds in table.param_types().items():
        argument = call.arguments[name]
        natural = natural_type(argument)
        (kind, *others) = [kind for kind in kinds if kind != NONE] or [""]
        if natural and not others and accepts(kind, argument) and kind not in (natural, "i1"):
            types.append((name, kind))
        if argument.kind == "int" and (name, 1 if argument.value == 1 else 16) not in hinted:
            plain.add(name)
    return tuple(types), frozenset(plain)


@cache
def _typed(function: Any, types: tuple[tuple[str, str], ...], plain: frozenset[str]) -> Any:
    """Return a copy of a Triton function whose params have types, some of them never constants; return other objects unchanged."""
    kind = type(function)
    if not kind.__module__.startswith("triton.") or not hasattr(function, "do_not_specialize"):
        return function
    if not types and plain <= {*function.do_not_specialize}:
        return function
    own = function.fn
    alike = FunctionType(own.__code__, own.__globals__, own.__name__, own.__defaults__, own.__closure__)
    alike.__dict__.update(own.__dict__)
    alike.__module__, alike.__qualname__, alike.__kwdefaults__ = own.__module__, own.__qualname__, own.__kwdefaults__
    signature, spelled = inspect.signature(own), dict(types)
    params = [
        param.replace(annotation=spelled.get(name, param.annotation)) for name, param in signature.parameters.items()
    ]
    alike.__signature__ = signature.replace(parameters=params)  # type: ignore[attr-defined] # what `inspect` reads first
    return kind(
        alike,
        version=function.version,
        do_not_specialize=[*function.do_not_specialize, *sorted(plain)],
        do_not_specialize_on_alignment=function.do_not_specialize_on_alignment,
        debug=function.debug,
        noinline=function.noinline,
    )


# -- device and grid --


def _grid_of(
    table: KernelTable, names: Mapping[str, expr.Value], missed: MissedCall, settings: Mapping[str, Any]
) -> tuple[int, ...]:
    """Return the grid of a call: the caller's, or the bundle's."""
    if isinstance(missed.grid, tuple):
        return missed.grid
    where = f"kernel {table.kernel}"
    if missed.grid is not None:
        meta = {**defaults_of(table), **missed.given, **settings}
        meta.pop("stream", None)
        given = missed.grid(meta)
        sides = tuple(given) if isinstance(given, tuple | list) else ()
        if not (1 <= len(sides) <= 3 and all(hasattr(side, "__index__") for side in sides)):
            raise ArgumentError(_core.GRID_RULE, got=shown(given), where=where)
        return tuple(side.__index__() for side in sides)
    if not table.grid:
        raise ArgumentError(_core.GRIDLESS, where=where)
    return tuple(_side_of(text, number, names, where) for number, text in enumerate(table.grid))


def _side_of(text: str, number: int, names: Mapping[str, expr.Value], where: str) -> int:
    value = value_of(text, names)
    if type(value) is int:
        return value
    raise ArgumentError(f"expected an int for grid[{number}], which is {text!r}", got=shown(value), where=where)


@contextmanager
def _current(device: int, stream: object) -> Iterator[None]:
    """Make a device and a stream current in torch, because Triton launches there."""
    try:
        import torch  # Triton's driver is torch's
    except ImportError:
        raise UnavailableError(
            "torch is not installed, and Triton launches on its streams: pip install torch"
        ) from None
    chosen = nullcontext() if stream is None else torch.cuda.stream(_torch_stream(torch, device, stream))
    with torch.cuda.device(device), chosen:
        yield


def _torch_stream(torch: Any, device: int, stream: Any) -> Any:
    handle = stream if isinstance(stream, int) else getattr(stream, "cuda_stream", None)
    if handle is None:
        handle = stream.__cuda_stream__()[1]
    return torch.cuda.ExternalStream(handle, device=device) if handle else torch.cuda.default_stream(device)
