"""Kernels of bundles as operators of torch: traced by ``torch.compile(fullgraph=True)`` and ``torch.export``. Imports torch.

::

    from nojit import runtime
    from nojit.torch import custom_op

    kernel = runtime.load("artifacts/acme").kernel("scale_rows")
    scale_rows = custom_op("acme::scale_rows", kernel, mutates_args=["out_ptr"], ACTIVATION="relu")


    @torch.compile(fullgraph=True)
    def layer(x, scale):
        out = torch.empty_like(x)
        scale_rows(x, scale, None, out, *x.shape, x.stride(0))
        return out + 1
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from json import dumps
from math import isfinite
from typing import Any, Final, TypeAlias

import torch
from nojit.kernels.calls.torch_state import PLAIN
from nojit.runtime import Kernel
from nojit.runtime.base.suggestions import did_you_mean
from nojit.runtime.base.wording import few, shown
from nojit.runtime.call.call_facts import slot_kind
from nojit.runtime.errors import ArgumentError
from nojit.runtime.triton_attributes import KernelParam
from nojit.runtime.types.names import is_tuple, members
from nojit.runtime.values import DType, Value

__all__ = ["CustomOp", "custom_op"]

Grid: TypeAlias = "tuple[int, ...] | Callable[[dict[str, Any]], Any] | None"

_CUDA: Final = frozenset({"cuda"})
_NAME: Final = re.compile(r"\w+::\w+\Z")
_NUMBERS: Final = {"pointer": "Tensor", "int": "SymInt", "float": "float", "bool": "bool"}
_CONSTEXPRS: Final = {bool: "bool", int: "int", float: "float", str: "str", DType: "ScalarType"}
_INSTEAD: Final = "write a function that launches the kernel, and decorate it with torch.library.custom_op"


class CustomOp:
    """An operator that launches one kernel. Call it as you call the kernel, without the fixed arguments.

    Under ``torch.compile`` and other tracing, transforms or autograd, a call goes through torch's dispatcher; otherwise it
    launches directly.

    Attributes:
        definition: the object that ``torch.library.custom_op`` returns, for `register_autograd` and `register_vmap`.
        overload: the operator, ``torch.ops.acme.scale_rows.default``, for ``torch.library.opcheck``.
    """

    def __init__(
        self,
        name: str,
        kernel: Kernel,
        params: Sequence[KernelParam],
        mutated: Collection[str],
        launch: Callable[..., Any],
    ) -> None:
        self._names = tuple(param.name for param in params)
        # whether arguments can be passed by position: the remaining params are the function's first ones
        self._by_place = list(self._names) == kernel.arg_names[: len(params)]
        # index of the function's `*args`, whose members are passed one by one
        self._rest = next((place for place, param in enumerate(params) if param.is_rest), None)
        self._tuples = tuple(place for place, param in enumerate(params) if _is_list(param))
        self._tensors = tuple(place for place, param in enumerate(params) if _kinds(param) - {"none"} == {"pointer"})
        self._mutated = tuple(place for place, param in enumerate(params) if param.name in mutated)
        self._defaults = tuple(param.default for param in params)
        self._launch = launch
        self.definition = torch.library.custom_op(
            name, self._run, mutates_args=sorted(mutated), schema=_schema(params, mutated)
        )
        self.overload = self.definition._opoverload  # noqa: SLF001 - the public way is a look-up by name
        self.__name__ = self.__qualname__ = name.partition("::")[2]

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """Launch the kernel, or record the launch while torch traces."""
        if not torch.compiler.is_compiling() and not kwargs and self._is_plain(args):
            self._run(*args)
            torch.autograd.graph.increment_version([args[place] for place in self._mutated if args[place] is not None])
            return
        self.overload(*args, **kwargs)

    def __repr__(self) -> str:
        return f"CustomOp({self.definition!r})"

    def _is_plain(self, args: tuple[Any, ...]) -> bool:
        """Return whether a call may bypass torch's dispatcher."""
        if len(args) != len(self._names) or self._tuples:
            return False
        return bool(PLAIN(_CUDA, *[args[place] for place in self._tensors]))

    def _run(self, *args: Any) -> None:
        # torch omits arguments that equal their default, and turns tuples into lists
        whole = [*args, *self._defaults[len(args) :]]
        for place in self._tuples:
            whole[place] = whole[place] if whole[place] is None else tuple(whole[place])
        if self._rest is not None:
            named = dict(zip(self._names[self._rest + 1 :], whole[self._rest + 1 :], strict=True))
            self._launch(*whole[: self._rest], *whole[self._rest], **named)
        elif self._by_place:
            self._launch(*whole)
        else:
            self._launch(**dict(zip(self._names, whole, strict=True)))


def custom_op(name: str, kernel: Kernel, *, mutates_args: Collection[str], grid: Grid = None, **fixed: Any) -> CustomOp:
    """Register an operator of torch that launches a kernel, so that torch's compiler can trace calls of it.

    The operator takes the kernel's arguments in their order, without the fixed ones, and returns nothing: as in Triton, the
    kernel writes to tensors that are passed in. Allocate them in the traced code. Configs are chosen as in any other call.

    Args:
        name: ``namespace::name``; registering a name again replaces the operator.
        kernel: a kernel of a bundle.
        mutates_args: all pointers that the kernel writes to; torch may reorder or drop calls whose outputs are not listed.
        grid: as in ``kernel[grid]``, for every call; the bundle's grid if None.
        fixed: constexprs, options and arguments for every call, by name.

    Raises:
        ArgumentError: a malformed name; an entry of `mutates_args` that is not a pointer; or a param that is not fixed and
            that torch's operators cannot take, or that was built for values of several kinds.
    """
    where = f"operator {name} of kernel {getattr(kernel, 'name', '')}"
    if not isinstance(kernel, Kernel):
        raise ArgumentError("expected a kernel of a bundle", got=type(kernel).__name__, where=where, argument="kernel")
    if not _NAME.match(name):
        raise ArgumentError("expected a name such as acme::scale_rows", got=repr(name), where=where, argument="name")
    # raises for names that the kernel does not have
    launch = kernel.bind(grid, **fixed)
    params = [param for param in kernel.params if param.is_given and param.name not in fixed]
    rest = next((param.num for param in kernel.params if param.is_rest), 0)
    before = [param.name for param in kernel.params[:rest] if param not in params]
    if before:
        raise ArgumentError("expected no fixed argument before *args", got=before[0], where=where, argument=before[0])
    pointers = [param.name for param in params if "Tensor" in _type_of(param, where)]
    for each in mutates_args:
        if each not in pointers:
            what = f"expected mutates_args to name pointers: {', '.join(pointers)}"
            got = f"{each!r}{did_you_mean(each, pointers)}"
            raise ArgumentError(what, got=got, where=where, argument="mutates_args")
    return CustomOp(name, kernel, params, frozenset(mutates_args), launch)


def _schema(params: Sequence[KernelParam], mutated: Collection[str]) -> str:
    """Return the operator's signature as a torch schema."""
    # in a schema, no param without a default may follow one with a default
    last = max((place for place, param in enumerate(params) if not _has_default(param)), default=-1)
    words = []
    for place, param in enumerate(params):
        kind = _type_of(param, "")
        if param.name in mutated:
            kind = kind.replace("Tensor", f"Tensor(a{place}!)")
        default = f"={_literal(param.default)}" if place > last else ""
        words.append(f"{kind} {param.name}{default}")
    return f"({', '.join(words)}) -> ()"


def _has_default(param: KernelParam) -> bool:
    """Return whether a param has a default that a torch schema can spell."""
    value = param.default
    if isinstance(value, float):
        return isfinite(value)
    if isinstance(value, str):
        return value.isascii() and value.isprintable()
    return param.has_default and isinstance(value, bool | int | None)


def _literal(value: Value) -> str:
    return dumps(value) if isinstance(value, str) else repr(value)


def _type_of(param: KernelParam, where: str) -> str:
    """Return the type of a param in torch's schemas: ``Tensor?``, ``SymInt``, ``str``.

    Raises:
        ArgumentError: no single type of torch fits the param.
    """
    kind = _type_of_constexpr(param.values) if param.is_constexpr else _type_of_argument(param)
    if kind:
        return kind
    built = few([shown(value) for value in param.values], 8) if param.is_constexpr else few(param.types, 8)
    what = f"expected {param.name} to be fixed, or of one type that operators of torch can take; or {_INSTEAD}"
    raise ArgumentError(what, got=built, where=where, argument=param.name)


def _type_of_constexpr(values: Sequence[Value]) -> str:
    kinds = {type(value) for value in values} - {type(None)}
    (kind,) = kinds if len(kinds) == 1 else (None,)
    found = _CONSTEXPRS.get(kind, "") if kind else ""
    return f"{found}?" if found and None in values else found


def _type_of_argument(param: KernelParam) -> str:
    kinds = _kinds(param)
    (kind,) = kinds - {"none"} if len(kinds - {"none"}) == 1 else ("",)
    found = _NUMBERS.get(kind, "")
    if kind == "tuple":
        inner = {slot_kind(member) for each in param.types if is_tuple(each) for member in members(each)}
        found = f"{_NUMBERS[min(inner)]}[]" if inner in ({"pointer"}, {"int"}) else ""
    return f"{found}?" if found and "none" in kinds else found


def _kinds(param: KernelParam) -> set[str]:
    return set(map(slot_kind, param.types))


def _is_list(param: KernelParam) -> bool:
    return "tuple" in _kinds(param)
