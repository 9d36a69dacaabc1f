"""Triton functions made again from the source closures of a recording.

Triton sees what it saw in the recorded process: the same texts, globals, modules' names and line numbers. So it compiles the same
machine code, without the program or its packages.
"""

from __future__ import annotations

import ast
import builtins
import enum
import inspect
import linecache
from collections import namedtuple
from importlib import import_module
from types import FunctionType, ModuleType
from typing import Any

from nojit.aot.manifest.function_names import find_named
from nojit.runtime.base.strict_json import canonical_json
from nojit.runtime.errors import ManifestError
from nojit.runtime.recording.closure import Closure
from nojit.runtime.values import LAYOUTS, DType, FunctionRef, decode_value
from triton.experimental.gluon._runtime import GluonJITFunction
from triton.language.core import constexpr, dtype
from triton.runtime.jit import ConstexprFunction, JITFunction

__all__ = ["Rebuilt", "file_name", "functions_of", "layout_of"]

# modules with layouts
_LAYOUTS = ("triton.experimental.gluon.language._layouts", "triton.experimental.gluon.language.nvidia.blackwell")
_MAKERS = {"jit": JITFunction, "gluon": GluonJITFunction}


def functions_of(closure: Closure, where: str) -> list[Any]:
    """Return the definitions of a closure as Triton's functions and classes, the kernel first.

    Args:
        closure: the source closure.
        where: the recording and kernel, for messages.

    Raises:
        ManifestError: a text cannot be compiled, or Triton or the standard library lacks a name that it needs.
    """
    return Rebuilt(closure, where).functions()


def layout_of(name: str, where: str) -> Any:
    """Return a layout of Gluon from the name of its `FunctionRef`.

    Args:
        name: ``triton.experimental.gluon.language:`` and the layout's ``repr``.
        where: the kernel, for messages.

    Raises:
        ManifestError: this Triton has no such layout.
    """
    namespace = ModuleType(LAYOUTS.rstrip(":"))
    for module in _LAYOUTS:
        vars(namespace).update(
            {key: each for key, each in vars(import_module(module)).items() if key.endswith("Layout")}
        )
    return find_named(namespace, name, where)


class Rebuilt:
    """Makes the definitions of one closure; each has its own globals, which are filled when all definitions exist."""

    def __init__(self, closure: Closure, where: str) -> None:
        self._definitions = closure["definitions"]
        self._where = where
        self._made: dict[int, Any] = {}
        self._scopes: list[dict[str, Any]] = []
        self._enums: dict[bytes, Any] = {}

    def member(self, name: str) -> Any:
        """Return the member of an enum from the name of its `FunctionRef`. Call `functions` before.

        Raises:
            ManifestError: the text of no definition names the enum.
        """
        for made in self._enums.values():
            owner = f"{made.__module__}:{made.__qualname__}."
            if name.startswith(owner) and name.removeprefix(owner) in made.__members__:
                return made[name.removeprefix(owner)]
        what = "expected a kernel whose source names the enum of its constexpr: pass the member's value"
        raise ManifestError(what, got=name, where=self._where)

    def functions(self) -> list[Any]:
        """Make all definitions."""
        self._scopes = [{"__name__": each["module"], "__builtins__": builtins} for each in self._definitions]
        try:
            # classes come last, since the bodies of their methods need the functions; constants may need classes
            for number, each in enumerate(self._definitions):
                if each["kind"] != "aggregate":
                    self._made[number] = self._function(number, each)
            for number in range(len(self._definitions)):
                self._definition(number)
            for number, each in enumerate(self._definitions):
                self._fill(self._scopes[number], each)
        except (SyntaxError, ImportError, AttributeError, LookupError, TypeError, ValueError) as error:
            what = "expected a recorded source that this Triton can read: record it again with this Triton"
            raise ManifestError(what, got=f"{type(error).__name__}: {error}", where=self._where) from error
        return [self._made[number] for number in range(len(self._definitions))]

    def _definition(self, number: int) -> Any:
        if number not in self._made:
            self._made[number] = self._aggregate(number, self._definitions[number])
        return self._made[number]

    def _function(self, number: int, each: dict[str, Any]) -> Any:
        text, name = each["text"], each["qualname"].rpartition(".")[2]
        file, scope = _file_of(each), self._scopes[number]
        # names of a stranger's packages stand in annotations and defaults: the node has what they mean
        tree = ast.parse(text, file)
        definition = tree.body[0]
        if not isinstance(definition, ast.FunctionDef):
            raise ValueError("expected a function in a recorded source")  # noqa: TRY004 - the text is data
        _strip(definition)
        ast.increment_lineno(tree, each["line"] - 1)
        exec(compile(tree, file, "exec"), scope)  # noqa: S102 - compiling a recording runs its source
        function = scope.pop(definition.name)
        _as_recorded(function, each, name)
        function.__annotations__ = dict(each["annotations"])
        function.__signature__ = self._signature(function, each)
        settings = each["settings"]
        if each["kind"] == "constexpr_function":
            return ConstexprFunction(function)
        return _MAKERS[each["kind"]](
            function,
            do_not_specialize=settings["do_not_specialize"],
            do_not_specialize_on_alignment=settings["do_not_specialize_on_alignment"],
            debug=settings["debug"],
            noinline=settings["noinline"],
        )

    def _signature(self, function: FunctionType, each: dict[str, Any]) -> inspect.Signature:
        params = []
        for param in inspect.signature(function).parameters.values():
            default = each["defaults"].get(param.name)
            params.append(
                param.replace(
                    annotation=each["annotations"].get(param.name, param.empty),
                    default=param.empty if default is None else self._value(default),
                )
            )
        return inspect.Signature(params)

    def _aggregate(self, number: int, each: dict[str, Any]) -> Any:
        scope = self._scopes[number]
        # a class that refers to itself finds nothing, as in its module
        self._made[number] = None
        self._fill(scope, each)
        file = _file_of(each)
        tree = ast.parse(each["text"], file)
        ast.increment_lineno(tree, each["line"] - 1)
        exec(compile(tree, file, "exec"), scope)  # noqa: S102 - as above
        made = scope[each["qualname"].rpartition(".")[2]]
        made.__module__, made.__qualname__ = each["module"], each["qualname"]
        return made

    def _fill(self, scope: dict[str, Any], each: dict[str, Any]) -> None:
        """Set the globals of a definition; dotted names are attributes of modules, the shorter names come first."""
        for name, node in sorted(each["names"].items()):
            *path, last = name.split(".")
            if not path:
                if "unknown" not in node:
                    scope[last] = self._value(node)
                continue
            holder = scope[path[0]]
            for part in path[1:]:
                holder = getattr(holder, part)
            # Triton reads the annotations of params, such as `torch.Tensor`, and does nothing with them
            setattr(holder, last, type(last, (), {}) if "unknown" in node else self._value(node))

    def _value(self, node: dict[str, Any]) -> Any:
        """Return the object that a node describes."""
        ((kind, content),) = node.items()
        return getattr(self, f"_value_{kind}")(content)

    def _value_definition(self, number: int) -> Any:
        return self._definition(number)

    def _value_value(self, encoded: Any) -> Any:
        return _to_triton(decode_value(encoded, self._where), self._where)

    def _value_constexpr(self, node: dict[str, Any]) -> Any:
        return constexpr(self._value(node))

    def _value_tuple(self, nodes: list[dict[str, Any]]) -> Any:
        return tuple(map(self._value, nodes))

    def _value_list(self, nodes: list[dict[str, Any]]) -> Any:
        return list(map(self._value, nodes))

    def _value_dict(self, pairs: list[list[dict[str, Any]]]) -> Any:
        return {self._value(key): self._value(item) for key, item in pairs}

    def _value_import(self, place: list[str]) -> Any:
        found: Any = import_module(place[0])
        for attribute in (part for name in place[1:] for part in name.split(".")):
            found = getattr(found, attribute)
        return found

    def _value_namespace(self, name: str) -> Any:
        return ModuleType(name)

    def _value_enum(self, described: dict[str, Any]) -> Any:
        key = canonical_json([described["module"], described["qualname"], described["members"]])
        if key not in self._enums:
            base = {"int": enum.IntEnum, "str": enum.StrEnum}.get(described["base"], enum.Enum)
            members = [(name, self._value_value(value)) for name, value in described["members"]]
            made = base(described["qualname"].rpartition(".")[2], members)
            made.__module__, made.__qualname__ = described["module"], described["qualname"]
            self._enums[key] = made
        return self._enums[key]

    def _value_member(self, described: dict[str, Any]) -> Any:
        return self._value_enum(described)[described["name"]]

    def _value_named_tuple(self, described: dict[str, Any]) -> Any:
        return namedtuple(described["qualname"].rpartition(".")[2], described["fields"])  # noqa: PYI024 - fields are data

    def _value_record(self, described: dict[str, Any]) -> Any:
        return self._value_named_tuple(described)(*map(self._value, described["items"]))

    def _value_unknown(self, kind: str) -> Any:
        # as a default: a kernel that needs it could not be launched either
        raise ValueError(f"an object of type {kind}, which a recording cannot hold, is the default of a param")


def _to_triton(value: Any, where: str) -> Any:
    if isinstance(value, DType):
        return dtype(value.name)
    if isinstance(value, FunctionRef):
        # of a constant, it is a layout
        return layout_of(value.name, where)
    return tuple(_to_triton(item, where) for item in value) if isinstance(value, tuple) else value


def _strip(definition: ast.FunctionDef) -> None:
    """Remove decorators, annotations and the values of defaults from a function's header, but not the fact that they exist."""
    definition.decorator_list, definition.returns = [], None
    given = definition.args
    every = [*given.posonlyargs, *given.args, *given.kwonlyargs, *filter(None, (given.vararg, given.kwarg))]
    for arg in every:
        arg.annotation = None
    given.defaults = [ast.copy_location(ast.Constant(None), each) for each in given.defaults]
    given.kw_defaults = [each and ast.copy_location(ast.Constant(None), each) for each in given.kw_defaults]


def _as_recorded(function: FunctionType, each: dict[str, Any], name: str) -> None:
    function.__module__, function.__qualname__, function.__name__ = each["module"], each["qualname"], name


def file_name(each: dict[str, Any]) -> str:
    """Return the file name of a definition in tracebacks and messages of compilers.

    `each`: a definition of a closure.
    """
    return f"<{each['module']}:{each['qualname']}:{each['line']}>"


def _file_of(each: dict[str, Any]) -> str:
    """Return a file name for a definition's text, and make `inspect` find the text there, at its recorded line."""
    file = file_name(each)
    lines = ["\n"] * (each["line"] - 1) + each["text"].splitlines(keepends=True)
    # without a time, `linecache` never looks for the file
    linecache.cache[file] = (sum(map(len, lines)), None, lines, file)
    return file
