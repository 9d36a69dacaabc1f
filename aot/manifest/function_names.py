"""Names of functions in manifests: a module or file, and an expression over its contents.

::

    package.module:function
    path/to/file.py:namespace.function
    package.module:kernels[2]                 package.module:kernels["relu"]
    package.module:make_kernel("gelu", 4)     package.module:make_kernel(gelu, width=4)
    package.module:outer.<locals>.function    a nested function that uses no variable of the outer one

An expression is a name of the module, followed by attributes, items and calls. Items are literals; arguments are literals
or such expressions. Nothing else is evaluated.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final

from nojit.runtime.base.suggestions import did_you_mean
from nojit.runtime.errors import ManifestError

__all__ = ["EXPECTED", "check_name", "find_named", "is_name"]

EXPECTED: Final = (
    "package.module:function or path/to/file.py:function, where an expression of names, [items] and (arguments) "
    "can stand for the function"
)
"""Description of a valid function name in a manifest, for error messages."""
# replaces `<locals>`, which Python's grammar cannot parse
_LOCALS: Final = "_nojit_locals"
_OF_LOCALS = re.compile(r"\.<locals>(?=\.)")


def check_name(spelling: str, where: str) -> None:
    """Check the syntax of a function's name.

    `spelling`: the name, ``package.module:function``.

    Raises:
        ManifestError: the name has another form.
    """
    module, _, name = spelling.partition(":")
    # a module's name has neither slashes nor empty parts, as a relative import would have
    if not module.endswith(".py") and ("/" in module or not all(module.split("."))):
        raise ManifestError(f"expected {EXPECTED}", got=repr(spelling), where=where)
    _parsed(name, spelling, where)


def is_name(spelling: str) -> bool:
    """Return whether `spelling` has the syntax of a function's name in a manifest."""
    try:
        check_name(spelling, "")
    except ManifestError:
        return False
    return True


def find_named(module: ModuleType, spelling: str, where: str) -> Any:
    """Return the object, usually a kernel function, that a function's name in a manifest stands for.

    Args:
        module: the imported module.
        spelling: the whole name.
        where: the manifest's entry, for messages.

    Raises:
        ManifestError: the name has another form, or the object does not exist; the message lists similar names.
    """
    of, _, name = spelling.partition(":")
    return _Finder(module, of, spelling, where).find(_parsed(name, spelling, where))


def _parsed(name: str, spelling: str, where: str) -> ast.expr:
    try:
        tree = ast.parse(_OF_LOCALS.sub(f".{_LOCALS}", name), mode="eval").body
        _check(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ManifestError(f"expected {EXPECTED}", got=repr(spelling), where=where) from None
    return tree


def _check(tree: ast.expr) -> None:
    """Raise if an expression has syntax other than names, attributes, items and calls."""
    match tree:
        case ast.Name(id=name) if not name.startswith("__"):
            return
        case ast.Attribute(value=value, attr=name) if not name.startswith("__"):
            _check(value)
        case ast.Subscript(value=value, slice=item):
            _check(value)
            ast.literal_eval(item)
        case ast.Call(func=function, args=args, keywords=keywords):
            _check(function)
            for each in (*args, *(keyword.value for keyword in keywords)):
                _check_argument(each)
            if any(keyword.arg is None for keyword in keywords):
                raise ValueError("a call with ** arguments")
        case _:
            raise ValueError(ast.dump(tree))


def _check_argument(tree: ast.expr) -> None:
    if isinstance(tree, ast.Name | ast.Attribute | ast.Subscript | ast.Call):
        _check(tree)
    else:
        ast.literal_eval(tree)


@dataclass(frozen=True, slots=True)
class _Finder:
    module: ModuleType
    of: str
    spelling: str
    where: str

    def find(self, tree: ast.expr) -> Any:
        """Return the object that an expression of names, attributes, items and calls stands for in the module."""
        match tree:
            case ast.Name(id=name):
                return self._attribute(self.module, name, f"a function of {self.of}", _functions(self.module))
            case ast.Attribute(value=ast.Attribute(value=outer, attr=mark), attr=name) if mark == _LOCALS:
                return self._local(self.find(outer), name, self._text(outer))
            case ast.Attribute(value=value, attr=name):
                found = self.find(value)
                return self._attribute(found, name, f"an attribute of {self._text(value)}", dir(found))
            case ast.Subscript(value=value, slice=item):
                return self._item(self.find(value), ast.literal_eval(item), self._text(value))
            case ast.Call():
                return self._called(tree)
        return ast.literal_eval(tree)

    def _attribute(self, value: Any, name: str, what: str, near: Sequence[str]) -> Any:
        try:
            found = getattr(value, name, None)
        except Exception as error:
            raise self._error(f"expected {what}", f"{type(error).__name__}: {error}") from error
        if found is None:
            raise self._error(f"expected {what}", f"{name!r}{did_you_mean(name, tuple(near))}")
        return found

    def _item(self, value: Any, item: Any, text: str) -> Any:
        try:
            return value[item]
        except Exception as error:
            what = f"expected an item of {text}"
            if isinstance(value, Mapping):
                near = did_you_mean(str(item), tuple(map(str, value)))
                raise self._error(what, f"{item!r}{near or f'; it has {_few(value)}'}") from error
            if isinstance(value, Sequence):
                raise self._error(what, f"{item!r}; it has {len(value)} items") from error
            raise self._error(what, f"{type(error).__name__}: {error}") from error

    def _called(self, tree: ast.Call) -> Any:
        function = self.find(tree.func)
        args = [self.find(arg) for arg in tree.args]
        named = {str(keyword.arg): self.find(keyword.value) for keyword in tree.keywords}
        try:
            return function(*args, **named)
        # SystemExit: a factory that calls sys.exit() must not end the build
        except (Exception, SystemExit) as error:
            raise self._error(
                f"expected {self._text(tree)} to return a function", f"{type(error).__name__}: {error}"
            ) from error

    def _local(self, outer: Any, name: str, text: str) -> Any:
        while not inspect.isfunction(outer) and hasattr(outer, "fn"):
            outer = outer.fn
        outer = inspect.unwrap(outer) if callable(outer) else outer
        if not isinstance(outer, FunctionType):
            raise self._error(f"expected {text} to be a function", type(outer).__name__)
        codes = [code for code in outer.__code__.co_consts if isinstance(code, CodeType)]
        code = next((code for code in codes if code.co_name == name), None)
        if code is None:
            near = did_you_mean(name, [code.co_name for code in codes])
            raise self._error(f"expected a function that {text} defines", f"{name!r}{near}")
        definition = _definition(code)
        if definition is None:
            raise self._error(f"expected readable source of {text}: define it in a file", f"none in {code.co_filename}")
        used = sorted(
            {
                *code.co_freevars,
                *(_names_around(definition) & {*outer.__code__.co_varnames, *outer.__code__.co_cellvars}),
            }
        )
        if used:
            what = f"expected {name} to use no variables of {text}; name a call that returns the function instead"
            raise self._error(what, ", ".join(used))
        return _defined(definition, outer, code.co_filename)

    def _text(self, tree: ast.expr) -> str:
        return ast.unparse(tree).replace(f".{_LOCALS}.", ".<locals>.")

    def _error(self, what: str, got: str) -> ManifestError:
        return ManifestError(what, got=got, where=self.where)


def _functions(module: ModuleType) -> tuple[str, ...]:
    return tuple(key for key, value in vars(module).items() if hasattr(value, "fn"))


def _few(value: Mapping[Any, Any]) -> str:
    return ", ".join(map(repr, [*value][:8])) or "none"


# -- functions that functions define -----------------------------------------------------------------------------------


def _definition(code: CodeType) -> ast.FunctionDef | None:
    """Return the syntax tree of the definition of a function's code."""
    try:
        tree = ast.parse(Path(code.co_filename).read_bytes())
    except (OSError, ValueError, SyntaxError):
        return None
    named = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == code.co_name)
    # the code's first line is that of its first decorator
    lines = ((node, min([node.lineno, *(each.lineno for each in node.decorator_list)])) for node in named)
    return next((node for node, line in lines if line == code.co_firstlineno), None)


def _names_around(definition: ast.FunctionDef) -> set[str]:
    """Return the names that a ``def`` statement itself reads: in decorators, defaults and annotations."""
    arguments = definition.args
    around = [*definition.decorator_list, *arguments.defaults, *filter(None, arguments.kw_defaults)]
    around += [each.annotation for each in _each_argument(arguments) if each.annotation is not None]
    return {node.id for each in around for node in ast.walk(each) if isinstance(node, ast.Name)}


def _each_argument(arguments: ast.arguments) -> Iterator[ast.arg]:
    yield from (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    yield from filter(None, (arguments.vararg, arguments.kwarg))


def _defined(definition: ast.FunctionDef, outer: FunctionType, file: str) -> Any:
    """Return the nested function that `definition` defines, without calling the function `outer` around it.

    The result has the same name, file and line numbers as if `outer` had defined it.
    """
    qualified = f"{outer.__qualname__}.<locals>.{definition.name}"

    def name_it(function: Any) -> Any:
        function.__qualname__ = qualified
        return function

    definition.decorator_list.append(ast.copy_location(ast.Name("_nojit_name_it", ast.Load()), definition))
    names: dict[str, Any] = {"_nojit_name_it": name_it}
    # globals are the module's for reading; the definition goes to a separate namespace
    exec(compile(ast.Module([definition], []), file, "exec"), outer.__globals__, names)  # noqa: S102 - the source's own text
    return names[definition.name]
