"""Reader of the decorators of a ``@triton.jit`` function that act at a launch: autotuners, heuristics, hooks.

Once Triton's autotuner has tuned a problem, a launch calls ``Config.pre_hook`` of the chosen config and no other hook. Its own
``pre_hook``, ``post_hook``, ``reset_to_zero`` and ``restore_value`` belong to the timed runs, and apply once more before
the first launch after those. A heuristic computes the value of a param at each call. This module does not import
Triton: it recognizes Triton's classes by their names.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nojit.aot.plan.function_facts import HEURISTICS, ConfigHook, Effect
from nojit.runtime.values import Value

__all__ = ["Decorators", "read_decorators"]

# a hook that calls only these has no effect except on its arguments
_PLAIN_BUILTINS = frozenset({"bool", "dict", "int", "isinstance", "len", "list", "max", "min", "range", "tuple"})


@dataclass(frozen=True, slots=True)
class Decorators:
    """The effects of a kernel function's decorators at a launch."""

    effects: tuple[Effect, ...]
    """Effects that a bundle does not reproduce."""
    computed: tuple[tuple[str, str], ...]
    """Params and options whose value a decorator computes, each with the decorator's name."""
    hooks: tuple[ConfigHook, ...]
    """Hooks that only set block sizes of descriptors; bundles reproduce these hooks."""


def read_decorators(found: Any, function: Any, descriptor: type) -> Decorators:
    """Return the effects of the decorators of a function.

    Args:
        found: the object that the manifest names: the function with its decorators.
        function: the JITFunction inside the decorators.
        descriptor: Triton's class of tensor descriptors.
    """
    effects: list[Effect] = []
    computed: dict[str, str] = {}
    hooks: list[ConfigHook] = []
    while found is not function:
        if _is(found, "Autotuner"):
            effects += _of_autotuner(found)
            computed |= dict.fromkeys((name for config in found.configs for name in config.kwargs), "triton.Config")
            read = [_read_hook(config, function, descriptor) for config in found.configs if config.pre_hook]
            hooks += [hook for hook in read if isinstance(hook, ConfigHook)]
            effects += [hook for hook in read if isinstance(hook, Effect)][:1]
        elif _is(found, "Heuristics"):
            computed |= dict.fromkeys(found.values, HEURISTICS)
        else:
            kind = type(found)
            does = f"an object of {kind.__module__}.{kind.__qualname__} around the function"
            effects.append(Effect(kind.__name__, does, "A bundle does not run it at a launch"))
        found = found.fn
    effects += _of_function(function)
    return Decorators(tuple(effects), tuple(computed.items()), tuple(hooks))


def _is(found: Any, name: str) -> bool:
    return any(kind.__name__ == name and kind.__module__.startswith("triton.") for kind in type(found).__mro__)


def _of_autotuner(tuner: Any) -> Iterator[Effect]:
    said = {
        "pre_hook": tuner.user_defined_pre_hook,
        "post_hook": tuner.user_defined_post_hook,
        "reset_to_zero": tuner.reset_to_zero,
        "restore_value": tuner.restore_value,
    }
    for name, value in said.items():
        if value:
            shown = name if value is True else f"{name}={value!r}"
            yield Effect(name, f"{shown} of @triton.autotune", "Triton applies it while it tunes; a bundle never tunes")


def _of_function(function: Any) -> Iterator[Effect]:
    if function.launch_metadata is not None:
        yield Effect(
            "launch_metadata",
            "launch_metadata of @triton.jit",
            "Triton calls it for profiler hooks; these get nojit's own facts instead",
        )
    if function.pre_run_hooks:
        yield Effect("add_pre_run_hook", "a hook of add_pre_run_hook()", "Triton calls it before every launch")


# -- hooks of configs ------------------------------------------------------------------------------------------------


class _OpaqueHookError(Exception):
    """Error: a hook does more than set block sizes of descriptors, or the build cannot tell what it does."""


def _read_hook(config: Any, function: Any, descriptor: type) -> ConfigHook | Effect:
    """Return the blocks that a hook sets, found by running it on placeholder arguments, or else its effect."""
    try:
        _check_code(config.pre_hook)
        given = {param.name: _stand_in(descriptor, param.name) for param in function.params}
        given |= {
            param.name: _unwrapped(param.default)
            for param in function.params
            if param.is_constexpr and param.has_default
        }
        given |= config.all_kwargs()
        blocks: dict[str, tuple[int | None, ...]] = {}
        with_blocks = {name: value for name, value in given.items() if isinstance(value, descriptor)}
        for value in with_blocks.values():
            value.__dict__["_blocks"] = blocks
        config.pre_hook(given)
        if not blocks:
            raise _OpaqueHookError("has no effect that the build can see")  # noqa: TRY301 - one path for every reason
    except Exception as error:  # noqa: BLE001 - the hook's own errors, too
        why = str(error) if isinstance(error, _OpaqueHookError) else f"raises {type(error).__name__}: {error}"
        return Effect(
            "Config.pre_hook",
            f"pre_hook of a triton.Config, which {why}",
            "Triton calls it before every launch: move its work into the caller",
        )
    settings = tuple((name, value) for name, value in config.kwargs.items() if isinstance(value, int | float | str))
    return ConfigHook(settings, tuple(blocks.items()))


def _unwrapped(default: Any) -> Value:
    value: Value = getattr(default, "value", default)
    return value


def _check_code(hook: Any) -> None:
    """Raise if a hook reads or calls anything but its arguments, which a bundle could not reproduce."""
    if not inspect.isfunction(hook):
        raise _OpaqueHookError(f"is a {type(hook).__name__}, not a plain function")
    reached = inspect.getclosurevars(hook)
    for name, value in (*reached.globals.items(), *reached.nonlocals.items()):
        if not (isinstance(value, int | float | str | None) or getattr(value, "__name__", "") == "TensorDescriptor"):
            raise _OpaqueHookError(f"uses {name}")
    for name in reached.builtins:
        if name not in _PLAIN_BUILTINS:
            raise _OpaqueHookError(f"calls {name}")


def _stand_in(descriptor: type, param: str) -> Any:
    """Return a placeholder for a descriptor argument. A hook can set its block but not read it."""

    def refuse(*_: object) -> Any:
        raise _OpaqueHookError(f"asks for the value of {param}")

    def read(_: object, name: str) -> Any:
        raise _OpaqueHookError(f"uses {param}.{name}")

    def write(self: Any, name: str, value: Any) -> None:
        if name != "block_shape" or not isinstance(value, Sequence):
            raise _OpaqueHookError(f"sets {param}.{name}")
        self.__dict__["_blocks"][param] = tuple(size if isinstance(size, int) else None for size in value)

    operations = ("__eq__", "__ne__", "__bool__", "__lt__", "__le__", "__gt__", "__ge__", "__add__", "__radd__", "__sub__", "__rsub__",
                  "__mul__", "__rmul__", "__floordiv__", "__rfloordiv__", "__mod__", "__index__", "__int__", "__len__", "__iter__",
                  "__getitem__", "__str__", "__format__")  # fmt: skip
    body: Mapping[str, Any] = dict.fromkeys(operations, refuse)
    kind = type(
        "StandIn", (descriptor,), {**body, "__hash__": object.__hash__, "__getattr__": read, "__setattr__": write}
    )
    return object.__new__(kind)
