"""Reader of a kernel's decorators and text for facts about its calls: configs, heuristics, uses of params. It does not import Triton.

A use leaves no choice of the type: Triton loads only from pointers, and divides only numbers. The reader reports no use of a param
that the kernel uses in two ways or assigns again.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Collection, Iterator
from typing import Any

from nojit.aot.plan.outline import Heuristic, OutlinedConfig, Unspelled, Use
from nojit.runtime.base.launch_options import BUILT_WITH, TUNABLE
from nojit.runtime.values import DType, Value

__all__ = ["read_configs", "read_heuristics", "read_optional", "read_uses"]

_ACCESSES = {"load", "store", "make_block_ptr", "make_tensor_descriptor"}
_INT_CALLS = {"range", "static_range", "cdiv"}
_DESCRIPTOR_METHODS = {"load", "store", "gather", "scatter", "atomic_add", "atomic_max", "atomic_min"}
_DESCRIPTOR_CALLS = {"load_tensor_descriptor", "store_tensor_descriptor", "async_copy_global_to_shared"}
_DESCRIPTOR_ATTRIBUTES = {"block_type", "block_shape"}
# options of a triton.Config, with the values that it has if nobody sets them
_OPTIONS: dict[str, Value] = {name: BUILT_WITH[name] for name in TUNABLE}


def read_configs(found: Any, function: Any) -> tuple[tuple[OutlinedConfig, ...], tuple[str, ...], tuple[str, ...]]:
    """Return the configs, the key and the names of the pruning functions of the autotuner around a function.

    Args:
        found: the object that the manifest names: the function with its decorators.
        function: the JITFunction inside the decorators.
    """
    while found is not function:
        if hasattr(found, "configs") and hasattr(found, "keys"):
            # without configs, Triton's autotuner makes one that sets nothing
            configs = tuple(_config(config) for config in found.configs if config.kwargs or len(found.configs) > 1)
            pruning = (getattr(found, "early_config_prune", None), getattr(found, "perf_model", None))
            names = [getattr(each, "__name__", "") for each in pruning if each]
            return configs, tuple(map(str, found.keys)), tuple(name for name in names if name != "_default_prune")
        found = found.fn
    return (), (), ()


def _config(config: Any) -> OutlinedConfig:
    options = tuple(
        (name, value) for name, default in _OPTIONS.items() if (value := getattr(config, name, default)) != default
    )
    return OutlinedConfig(tuple((str(name), _value(value)) for name, value in config.kwargs.items()), options)


def _value(value: Any) -> Value | Unspelled:
    kind = type(value)
    if kind.__module__.startswith("triton."):
        if kind.__name__ == "constexpr":
            return _value(value.value)
        if kind.__name__ == "dtype":
            return DType(str(value))
    return value if value is None or kind in {bool, int, float, str} else Unspelled(repr(value)[:200])


def read_heuristics(computed: Collection[str], function: Any) -> tuple[Heuristic, ...]:
    """Return what ``@triton.heuristics`` computes, with the text of each function that the decorator holds."""
    written: dict[str, str] = {}
    for decorator in _tree(function).decorator_list:
        if isinstance(decorator, ast.Call) and _called(decorator) == "heuristics":
            for table in (*decorator.args, *(keyword.value for keyword in decorator.keywords)):
                if isinstance(table, ast.Dict):
                    pairs = zip(table.keys, table.values, strict=True)
                    written |= {
                        str(key.value): ast.unparse(each) for key, each in pairs if isinstance(key, ast.Constant)
                    }
    return tuple(Heuristic(name, written.get(name, "")) for name in computed)


def read_optional(params: Collection[str], function: Any) -> tuple[str, ...]:
    """Return the runtime params that the kernel or the text of a heuristic compares with None."""
    found = set()
    for node in ast.walk(_tree(function)):
        match node:
            case ast.Compare(left=left, ops=[ast.Is() | ast.IsNot()], comparators=[ast.Constant(value=None)]):
                found |= {left.id} if isinstance(left, ast.Name) else set()
                if isinstance(left, ast.Subscript) and isinstance(left.slice, ast.Constant):
                    found.add(str(left.slice.value))
    return tuple(name for name in params if name in found)


def read_uses(params: Collection[str], key: Collection[str], function: Any) -> tuple[tuple[str, Use], ...]:
    """Return the kind of those runtime params whose uses in the kernel allow only one kind.

    Args:
        params: names of the runtime params.
        key: names in the autotuner's key.
        function: the JITFunction.
    """
    tree = _tree(function)
    uses: dict[str, set[Use]] = {}
    for node in ast.walk(tree):
        for name, use in _uses_of(node):
            uses.setdefault(name, set()).add(use)
        # a bound of a mask, as in offsets < N; a float may be compared, too, but is no size by its name
        for name in _compared(node):
            if len(name) == 1 or name in key:
                uses.setdefault(name, set()).add(Use.INT)
    ints = {name for name, found in uses.items() if Use.INT in found}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (_called(node) in _ACCESSES or _called(node).startswith("atomic_")):
            base = _base(_first(node))
            if base in params and base not in ints:
                uses.setdefault(base, set()).add(Use.POINTER)
    fresh = _assigned_anew(tree)
    return tuple(
        (name, only) for name in params for only in uses.get(name, ()) if len(uses[name]) == 1 and name not in fresh
    )


def _tree(function: Any) -> ast.FunctionDef:
    for node in ast.walk(ast.parse(textwrap.dedent("".join(function.raw_src)))):
        if isinstance(node, ast.FunctionDef):
            return node
    raise TypeError(f"expected the text of a function, got that of {function!r}")


def _uses_of(node: ast.AST) -> Iterator[tuple[str, Use]]:
    match node:
        case ast.BinOp(left=left, op=ast.FloorDiv() | ast.Mod(), right=right):
            yield from ((each.id, Use.INT) for each in (left, right) if isinstance(each, ast.Name))
        case ast.Call() if _called(node) in _INT_CALLS:
            yield from ((each.id, Use.INT) for each in node.args if isinstance(each, ast.Name))
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method)) if method in _DESCRIPTOR_METHODS:
            yield name, Use.DESCRIPTOR
        case ast.Call() if _called(node) in _DESCRIPTOR_CALLS and isinstance(first := _first(node), ast.Name):
            yield first.id, Use.DESCRIPTOR
        case ast.Call(func=ast.Name(id="len"), args=[ast.Name(id=name)]):
            yield name, Use.TUPLE
        case ast.Attribute(value=ast.Name(id=name), attr=attribute) if attribute in _DESCRIPTOR_ATTRIBUTES:
            yield name, Use.DESCRIPTOR
        case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=int()) | ast.Name()):
            yield name, Use.TUPLE


def _compared(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Lt | ast.LtE | ast.Gt | ast.GtE):
        yield from (each.id for each in (node.left, *node.comparators) if isinstance(each, ast.Name))


def _called(call: ast.Call) -> str:
    function = call.func
    return (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )


def _first(call: ast.Call) -> ast.expr | None:
    named = {keyword.arg: keyword.value for keyword in call.keywords}
    return call.args[0] if call.args else named.get("pointer", named.get("base"))


def _base(node: ast.expr | None) -> str:
    """Return the name that an address starts with, ``x`` of ``x + row * stride``; empty if it starts with anything else."""
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        node = node.left
    return node.id if isinstance(node, ast.Name) else ""


def _assigned_anew(tree: ast.FunctionDef) -> set[str]:
    """Return the names that get a value which is not made of their own."""
    fresh: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            read = {each.id for each in ast.walk(node.value) if isinstance(each, ast.Name)}
            targets = {each.id for target in node.targets for each in ast.walk(target) if isinstance(each, ast.Name)}
            loads = {"load"} & {_called(each) for each in ast.walk(node.value) if isinstance(each, ast.Call)}
            fresh |= targets if loads else targets - read
        elif isinstance(node, ast.For) and isinstance(node.target, ast.Name):
            fresh.add(node.target.id)
    return fresh
