"""``@triton.jit`` functions, whose launches the serving package takes, and functions of constexprs."""

from __future__ import annotations

import ast
import hashlib
import inspect
import os
import re
import textwrap
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any, Final

from nojit.runtime.serve.hosts import ATTRIBUTE
from nojit.runtime.serve.standin.callbacks import MissingError, served, since
from nojit.runtime.serve.standin.constants import Constexpr, ConstexprType, unwrap
from nojit.runtime.serve.standin.dtypes import DType, PointerType
from nojit.runtime.serve.standin.knobs import runtime
from nojit.runtime.serve.standin.registry import export, exported
from nojit.runtime.serve.standin.tensors import MockTensor
from nojit.runtime.serve.standin.type_names import CANONICAL

__all__ = ["ConstexprFunction", "JITCallable", "JITFunction", "KernelInterface", "KernelParam", "NamedFunction", "jit"]

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


@exported("triton.runtime.jit")
class KernelInterface:
    """Something that is launched with ``kernel[grid](...)``."""

    def __class_getitem__(cls, item: Any) -> Any:
        return cls

    def warmup(self, *args: Any, grid: Any, **kwargs: Any) -> Any:
        """Prepare a launch; a torch dtype stands for a tensor."""
        return self.run(*map(MockTensor.wrap_dtype, args), grid=grid, warmup=True, **kwargs)

    def run(self, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        """Launch."""
        raise NotImplementedError("run not implemented")

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        def launch(*args: Any, **kwargs: Any) -> Any:
            return self.run(*args, grid=grid, warmup=False, **kwargs)

        return launch


@exported("triton.runtime.jit")
class JITFunction(JITCallable, KernelInterface):
    """A ``@triton.jit`` function.

    Args:
        fn: the Python function.
        version: anything.
        do_not_specialize: params without hints, by name or place.
        do_not_specialize_on_alignment: params without the hint of divisibility, by name or place.
        debug: whether device assertions are compiled in.
        noinline: whether calls of it stay calls.
        repr: returns the kernel's name for a specialization.
        launch_metadata: returns what profilers see of a launch.

    Raises:
        TypeError: the function has ``**kwargs``.
    """

    _runs = True
    """Whether `run` is this class's, and not a subclass's own."""

    def __init__(
        self,
        fn: Any,
        version: Any = None,
        do_not_specialize: Iterable[int | str] | None = None,
        do_not_specialize_on_alignment: Iterable[int | str] | None = None,
        debug: bool | None = None,
        noinline: bool | None = None,
        repr: Callable[[Any], str] | None = None,  # noqa: A002 - Triton's name
        launch_metadata: Callable[..., Any] | None = None,
    ) -> None:
        super().__init__(fn)
        self.module = fn.__module__
        self.version = version
        self.do_not_specialize = do_not_specialize or []
        self.do_not_specialize_on_alignment = do_not_specialize_on_alignment or []
        self.debug = debug
        self.noinline = noinline
        self.launch_metadata = launch_metadata
        self._repr = repr
        self.kernel = None
        self.params = [self._param(num, param) for num, param in enumerate(self.signature.parameters.values())]
        self.arg_names = [param.name for param in self.params]
        self.constexprs = [param.num for param in self.params if param.is_constexpr]
        self.device_caches: dict[Any, Any] = defaultdict(self.create_binder)
        self.pre_run_hooks: list[Callable[..., Any]] = []

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._runs = cls.run is JITFunction.run

    def _param(self, num: int, param: inspect.Parameter) -> KernelParam:
        if param.kind is inspect.Parameter.VAR_KEYWORD and since("3.9"):
            raise TypeError(f"JIT functions do not support **{param.name} parameters")
        unspecialized, unaligned = self.do_not_specialize, self.do_not_specialize_on_alignment
        return KernelParam(
            num, param, num in unspecialized or param.name in unspecialized, num in unaligned or param.name in unaligned
        )

    def is_gluon(self) -> bool:
        """Say whether the function is Gluon's."""
        return False

    def add_pre_run_hook(self, hook: Callable[..., Any]) -> None:
        """Call a function with the arguments before each launch."""
        if not callable(hook):
            raise AssertionError(hook)  # noqa: TRY004 - as Triton's
        self.pre_run_hooks.append(hook)

    def create_binder(self) -> tuple[Any, ...]:
        """Return the caches of a device: both are empty, since nothing is compiled."""
        from nojit.runtime.serve.standin.driver import driver  # noqa: PLC0415 - it imports this module
        from nojit.runtime.serve.standin.targets import make_backend  # noqa: PLC0415 - only programs that ask pay for it

        target = driver.active.get_current_target()
        return {}, {}, target, make_backend(target), self._bind

    def _bind(self, *args: Any, **kwargs: Any) -> Any:
        raise MissingError(f"the binder of {self._fn_name}")

    def preload(self, specialization_data: Any) -> Any:
        """Raise an error: compiled kernels are in bundles."""
        raise MissingError(f"triton.runtime.jit.JITFunction.preload of {self._fn_name}")

    def run(self, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        """Let the serving package launch."""
        debug = kwargs.get("debug") or self.debug or runtime.debug
        if debug:
            kwargs["debug"] = debug
        for hook in self.pre_run_hooks:
            hook(*args, **kwargs)
        return served(self._fn_name).launch(self, grid, args, kwargs, warmup)

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        own = self.__dict__
        if self._runs and not self.pre_run_hooks and not self.debug and "run" not in own:
            # every launch comes here: what serves the function has been found before
            handle = own.get(ATTRIBUTE)
            if handle is not None:
                return handle[grid]  # type: ignore[no-any-return] # a launcher in C
            find = served(self._fn_name).function_for_grid
            found = None if find is None else find(self, grid)
            if found is not None:
                return found
        return super().__getitem__(grid)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Raise an error: kernels call it."""
        raise RuntimeError("Cannot call @triton.jit'd outside of the scope of a kernel")

    def repr(self, specialization: Any) -> str:
        """Return the kernel's name for a specialization."""
        return self._fn_name if self._repr is None else self._repr(specialization)

    def __repr__(self) -> str:
        return f"JITFunction({self.module}:{self.fn.__qualname__})"


class NamedFunction(JITFunction):
    """A function of Triton's own library, such as ``tl.sum``: its name and params, without a source.

    Args:
        fn: raises an error with the name.
    """

    def __init__(self, fn: Any) -> None:
        super().__init__(fn)
        self.__globals__ = {}
        self.hash = f"triton:{self._fn_name}"

    @property
    def _source(self) -> tuple[list[str], int]:
        raise MissingError(self._fn_name, "nojit's stand-in for Triton has no source of it")


# nojit knows a function that is passed as a constexpr by the name of its class
NamedFunction.__module__, NamedFunction.__name__ = JITFunction.__module__, "JITFunction"


@exported("triton.experimental.gluon._runtime")
class GluonJITFunction(JITFunction):
    """A ``@gluon.jit`` function."""

    def is_gluon(self) -> bool:
        """Say that the function is Gluon's."""
        return True


@exported("triton.runtime.interpreter")
class InterpretedFunction(KernelInterface):
    """A function for Triton's interpreter, which the stand-in lacks: its launch is an error."""

    def __init__(self, fn: Any, **kwargs: Any) -> None:
        self.fn = fn
        self.kwargs = kwargs
        self.signature = inspect.signature(fn)
        self.arg_names = [*self.signature.parameters]
        self.__name__, self.__module__, self.__doc__ = fn.__name__, fn.__module__, fn.__doc__

    def run(self, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        """Raise an error."""
        raise MissingError(
            f"{self.__module__}.{self.__name__}", "TRITON_INTERPRET asks for Triton's interpreter"
        ).advise("unset TRITON_INTERPRET, or install Triton")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.run(*args, grid=None, warmup=False, **kwargs)


def _decorator(kind: type[JITFunction], fn: Any, settings: dict[str, Any]) -> Any:
    def decorate(fn: Any) -> Any:
        if os.environ.get("TRITON_INTERPRET", "").lower() in {"1", "true", "yes", "on", "y"} and kind is JITFunction:
            return InterpretedFunction(fn, **settings)
        return kind(fn, **settings)

    return decorate if fn is None else decorate(fn)


@exported("triton.runtime.jit")
def jit(
    fn: Any = None,
    *,
    version: Any = None,
    repr: Any = None,  # noqa: A002 - Triton's name
    launch_metadata: Any = None,
    do_not_specialize: Any = None,
    do_not_specialize_on_alignment: Any = None,
    debug: Any = None,
    noinline: Any = None,
) -> Any:
    """Decorate a function of Triton's language; see `JITFunction`."""
    return _decorator(JITFunction, fn, _settings(locals()))


@exported("triton.experimental.gluon._runtime", "jit")
def gluon_jit(
    fn: Any = None,
    *,
    version: Any = None,
    repr: Any = None,  # noqa: A002 - Triton's name
    launch_metadata: Any = None,
    do_not_specialize: Any = None,
    do_not_specialize_on_alignment: Any = None,
    debug: Any = None,
    noinline: Any = None,
) -> Any:
    """Decorate a function of Gluon; see `JITFunction`."""
    return _decorator(GluonJITFunction, fn, _settings(locals()))


def _settings(given: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if name != "fn"}


@exported("triton.runtime.jit")
class BoundConstexprFunction(JITCallable):
    """A function of constexprs that is a method."""

    def __init__(self, instance: Any, fn: ConstexprFunction) -> None:
        self.__self__ = instance
        self.__func__ = fn

    @property
    def cache_key(self) -> str:
        """The function's."""
        return self.__func__.cache_key

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__func__(self.__self__, *args, **kwargs)


@exported("triton.runtime.jit")
class ConstexprFunction(JITCallable):
    """A Python function that the compiler calls; so can host code."""

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else BoundConstexprFunction(instance, self)

    def __call__(self, *args: Any, _semantic: Any = None, **kwargs: Any) -> Any:
        """Call the function, without constexprs around its arguments."""
        result = self.fn(*map(unwrap, args), **{name: unwrap(value) for name, value in kwargs.items()})
        return result if _semantic is None else Constexpr(result)


@exported("triton.runtime.jit")
def constexpr_function(fn: Any) -> ConstexprFunction:
    """Decorate a Python function, so that the compiler may call it with constexprs."""
    return ConstexprFunction(fn)


@exported("triton")
def cdiv(x: int, y: int) -> int:
    """Divide, and round up."""
    return (x + y - 1) // y


@exported("triton")
def next_power_of_2(n: int) -> int:
    """Return the least power of 2 that is not below `n`; 0 for 0."""
    return 1 << (n - 1).bit_length() if n > 0 else 0


export("triton", cdiv=constexpr_function(cdiv), next_power_of_2=constexpr_function(next_power_of_2))
export("triton.runtime.jit", _normalize_ty=_annotation)
