"""``@triton.jit`` functions, whose launches the serving package takes."""

from __future__ import annotations

import inspect
import os
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from nojit.runtime.serve.hosts import ATTRIBUTE
from nojit.runtime.serve.standin.callables import JITCallable, KernelParam
from nojit.runtime.serve.standin.callbacks import MissingError, served, since
from nojit.runtime.serve.standin.knobs import runtime
from nojit.runtime.serve.standin.registry import exported
from nojit.runtime.serve.standin.tensors import MockTensor

__all__ = ["JITFunction", "KernelInterface", "NamedFunction", "jit"]


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
        from nojit.runtime.serve.standin.driver import driver  # it imports this module
        from nojit.runtime.serve.standin.targets import make_backend

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
