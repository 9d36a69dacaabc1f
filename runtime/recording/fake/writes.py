"""The tensors that a launch may write to, from the source of its kernel."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Mapping
from typing import Any, Final

from nojit.runtime.recording.fake.known_values import forget

__all__ = ["forget_written", "may_write"]

_DEPTH_MAX: Final = 8
# loading through a pointer gives values, not pointers
_LOADS: Final = frozenset({"load", "device_print", "static_print", "static_assert", "device_assert", "assume"})
# functions and methods that write nothing; their result may point where their arguments point
_HARMLESS: Final = frozenset(
    {
        "advance",
        "arange",
        "broadcast",
        "broadcast_to",
        "cast",
        "cdiv",
        "expand_dims",
        "make_block_ptr",
        "make_tensor_descriptor",
        "max",
        "max_contiguous",
        "maximum",
        "min",
        "minimum",
        "multiple_of",
        "range",
        "reshape",
        "to",
        "view",
        "where",
    }
)


def forget_written(function: Any, arguments: Mapping[str, Any]) -> None:
    """Make the values of those arguments unknown to which a launch may write."""
    for name, value in arguments.items():
        tensors = list(_tensors(value))
        if tensors and may_write(function, name):
            for tensor in tensors:
                forget(tensor)


def _tensors(value: Any) -> Iterator[Any]:
    if isinstance(value, (tuple, list)):
        for each in value:
            yield from _tensors(each)
    elif hasattr(value, "untyped_storage"):
        yield value
    elif hasattr(value, "base"):
        # a tensor descriptor, or a tensor whose dtype the program reinterprets
        yield from _tensors(value.base)


def may_write(function: Any, param: str) -> bool:
    """Return whether a kernel may write through a param; True if its source does not show that it never does."""
    return _may_write(function, param, 0)


@functools.lru_cache(maxsize=4096)
def _may_write(function: Any, param: str, depth: int) -> bool:
    if depth > _DEPTH_MAX or not hasattr(function, "parse"):
        return True
    try:
        tree = function.parse()
    except (SyntaxError, ValueError):
        return True
    return _Flow(function, tree, param, depth).writes()


class _Flow:
    """Names of a kernel that may point where a param points."""

    def __init__(self, function: Any, tree: ast.AST, param: str, depth: int) -> None:
        self._function = function
        self._tree = tree
        self._depth = depth
        self._names = {param}

    def writes(self) -> bool:
        """Return whether the kernel may write through one of the names."""
        while self._spread():
            pass
        return any(isinstance(node, (ast.Call, ast.Return)) and self._is_write(node) for node in ast.walk(self._tree))

    def _spread(self) -> bool:
        before = len(self._names)
        for node in ast.walk(self._tree):
            if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.NamedExpr, ast.For)):
                value = node.iter if isinstance(node, ast.For) else node.value
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                if value is not None and self._points(value):
                    self._names |= {
                        name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)
                    }
        return len(self._names) > before

    def _points(self, node: ast.AST) -> bool:
        """Return whether an expression's value may point where the param points."""
        if isinstance(node, ast.Call):
            name = _name(node.func)
            if name in _LOADS:
                return False
            # a method of a block pointer or descriptor, such as .to, or a function of any kind
            return any(self._points(each) for each in ast.iter_child_nodes(node))
        if isinstance(node, ast.Name):
            return node.id in self._names
        if isinstance(node, ast.Compare):
            return False
        return any(self._points(each) for each in ast.iter_child_nodes(node))

    def _is_write(self, node: ast.Call | ast.Return) -> bool:
        if isinstance(node, ast.Return):
            # a helper that returns a pointer: its caller may write
            return node.value is not None and self._depth > 0 and self._points(node.value)
        name = _name(node.func)
        given = [*node.args, *(keyword.value for keyword in node.keywords)]
        if name in _LOADS:
            return False
        helper = self._helper(node.func)
        if helper is not None:
            return self._helper_writes(helper, node)
        if isinstance(node.func, ast.Attribute) and name == "load":
            return False
        # a pointer among the arguments of tl.store, or the descriptor that has the method
        object_ = [node.func.value] if isinstance(node.func, ast.Attribute) else []
        return name not in _HARMLESS and any(self._points(each) for each in (*given, *object_))

    def _helper(self, node: ast.AST) -> Any:
        scope = getattr(self._function, "__globals__", {})
        found = scope.get(node.id) if isinstance(node, ast.Name) else None
        return found if hasattr(found, "parse") and hasattr(found, "arg_names") else None

    def _helper_writes(self, helper: Any, node: ast.Call) -> bool:
        names = helper.arg_names
        pairs = [(names[place] if place < len(names) else "", value) for place, value in enumerate(node.args)]
        pairs += [(keyword.arg or "", keyword.value) for keyword in node.keywords]
        return any(
            self._points(value) and (not name or _may_write(helper, name, self._depth + 1)) for name, value in pairs
        )


def _name(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
