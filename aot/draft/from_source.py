"""A first manifest from the source of a kernel: it states what the source tells, and asks a question for every other value."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from nojit.aot.manifest.expression_tree import is_boolean, tree_of
from nojit.aot.manifest.options import OPTIONS
from nojit.aot.manifest.placeholders import PLACEHOLDER
from nojit.aot.manifest.toml import flat, toml_key, toml_text, toml_texts, toml_value
from nojit.aot.plan.outline import Heuristic, Outline, OutlinedConfig, Unspelled, Use
from nojit.runtime.expr.operations import ExpressionError
from nojit.runtime.expr.postfix import FUNCTIONS, postfix
from nojit.runtime.table.parts import Missing, Param
from nojit.runtime.values import Value

__all__ = ["Draft", "draft_manifest"]

_POINTER_NAME = re.compile(r"_ptrs?$|^ptr_|Ptr$|_pointer$")
_DESCRIPTOR_NAME = re.compile(r"_desc$|^desc_|_descriptor$")
_INT_NAME = re.compile(
    r"^strides?(_|$)|_strides?(_|$)|^n_\w+$|^num_\w+$|_(size|len|length|dim|count|rows|cols|elements)$|^seq_?len"
)
_FLOAT_NAME = re.compile(r"^(eps|epsilon|sm_scale|softmax_scale)$")
# what a constexpr of such a name changes is the speed
_TILE_NAME = re.compile(r"BLOCK|TILE|GROUP_SIZE|GROUP_M|^BM$|^BN$|^BK$|_STAGES$|SPLIT_K|UNROLL", re.IGNORECASE)
_INTS = re.compile(r"[iu](8|16|32|64)$")
_DTYPES = "*fp16, *bf16, *fp32, *i32"


@dataclass(frozen=True, slots=True)
class Draft:
    """A manifest to complete."""

    text: str
    questions: tuple[str, ...]
    """The questions, in the order of the text."""


@dataclass(slots=True)
class _Page:
    """The text of a manifest as it is written."""

    lines: list[str] = field(default_factory=list)
    questions: list[str] = field(default_factory=list)

    def put(self, key: str, value: str, comment: str = "") -> None:
        pair = f"{toml_key(key)} = {value}"
        self.lines.append(f"{pair:<38} # {flat(comment)}" if comment else pair)

    def note(self, text: str) -> None:
        self.lines.append(f"# {flat(text)}")

    def table(self, header: str) -> None:
        self.lines += ["", header]

    def ask(self, question: str) -> str:
        """Note a question; return the TOML that holds its place."""
        self.questions.append(question)
        return toml_text(f"{PLACEHOLDER}{question}")


def draft_manifest(outline: Outline, spelling: str, archs: Sequence[str]) -> Draft:
    """Return a first manifest of a kernel.

    Args:
        outline: what the kernel's source tells.
        spelling: the source, relative to the manifest's folder.
        archs: architectures to build for.
    """
    page, name = _Page(), outline.source.name
    page.note("Read docs/manifest.md for every key. Check this file with: nojit build FILE --dry-run")
    page.put("schema", "1")
    page.table("[bundle]")
    page.put("name", toml_text(name.replace("_", "-").strip("-") or "kernel"))
    page.put("version", toml_text("0.1"))
    page.put("archs", toml_texts(archs))
    page.table("[[kernel]]")
    page.put("name", toml_text(name), "callers ask for it: bundle.kernel(name)")
    page.put("source", toml_text(spelling))
    page.note('grid = ["cdiv(n, BLOCK)"]  # with a grid here, callers need not pass one')
    _put_effects(page, outline)
    kinds = _put_params(page, outline)
    _put_matrix(page, outline)
    _put_derived(page, outline)
    _put_hints(page, outline, kinds)
    _put_configs(page, outline)
    _put_tuning(page, outline)
    return Draft("\n".join(page.lines) + "\n", tuple(page.questions))


def _put_effects(page: _Page, outline: Outline) -> None:
    if outline.source.effects:
        asked = [
            page.ask(f"{effect.name} if your calls do not need {effect.what}; else move its work into the caller")
            for effect in outline.source.effects
        ]
        page.put("ignores", f"[{', '.join(asked)}]")


# -- params ----------------------------------------------------------------------------------------------------------


def _put_params(page: _Page, outline: Outline) -> dict[str, str]:
    """Write the types of runtime params; return what each is: ``pointer``, ``int``, or empty."""
    runtime = [param for param in outline.source.params if not param.constexpr]
    if not runtime:
        return {}
    page.table("[kernel.params]")
    page.note("the type of every param that is no tl.constexpr; a final ? also builds the kernel for None")
    kinds = {}
    for param in runtime:
        kinds[param.name], value, comment = _type_of(page, param, outline)
        if param.name in outline.source.unspecialized:
            comment = "; ".join(filter(None, (comment, "do_not_specialize: takes no hint")))
        page.put(param.name, value, comment)
    return kinds


def _type_of(page: _Page, param: Param, outline: Outline) -> tuple[str, str, str]:
    """Return what a param is, its type as TOML, and a comment."""
    name, use = param.name, _use_of(param, outline)
    annotated = dict(outline.source.annotations).get(name)
    if annotated is not None:
        kind = "pointer" if annotated.startswith("*") else "int" if _INTS.match(annotated) else ""
        return kind, toml_text(annotated), "as the kernel annotates it"
    if use is None and isinstance(param.default, bool):
        return "", toml_text("i1"), "a bool, as its default"
    if use is None and (isinstance(param.default, float) or _FLOAT_NAME.search(name)):
        return "", toml_text("fp32"), "a Python float"
    if use is Use.INT:
        optional = "?" if _can_be_none(param, outline) else ""
        return "int", toml_text(f"i32{optional}"), "an int below 2^31; i64 takes larger ones"
    kind = "pointer" if use is Use.POINTER or name in outline.source.constants else ""
    return kind, page.ask(_type_question(param, use, outline)), ""


def _type_question(param: Param, use: Use | None, outline: Outline) -> str:
    name = param.name
    none = ", with a final ? as it can be None" if _can_be_none(param, outline) else ""
    of_matrix = '{dtype} with dtype = ["fp16", "bf16"] in [kernel.matrix]'
    if name in outline.source.constants:
        return f"the pointer {name} to constants{none}: *kfp16, *kbf16, *kfp32, or *k{of_matrix}"
    if use is Use.DESCRIPTOR:
        return f"the tensor descriptor {name}: {_descriptor_example(name, outline)}"
    if use is Use.TUPLE:
        return f"the types of the tuple {name}, such as (*fp16, i32)"
    if use is Use.POINTER:
        return f"the pointer {name}{none}: {_DTYPES}, or *{of_matrix}"
    return f"the type of {name}{none}: a pointer such as {_DTYPES}, an int i32 or i64, a float fp32, a bool i1"


def _can_be_none(param: Param, outline: Outline) -> bool:
    return param.default is None or param.name in outline.optional


def _use_of(param: Param, outline: Outline) -> Use | None:
    """Return what a param is by its use and its name; None if neither tells, or they disagree."""
    if param.default == ():
        return Use.TUPLE
    found = {use for name, use in outline.uses if name == param.name}
    patterns = ((Use.DESCRIPTOR, _DESCRIPTOR_NAME), (Use.POINTER, _POINTER_NAME), (Use.INT, _INT_NAME))
    found |= {use for use, pattern in patterns if pattern.search(param.name)}
    return found.pop() if len(found) == 1 else None


def _descriptor_example(name: str, outline: Outline) -> str:
    blocks = [dict(hook.blocks).get(name) for hook in outline.source.hooks]
    known = next((block for block in blocks if block), None)
    layout = (
        "; write its layout if it is not the default, docs/manifest.md#tensor-descriptors"
        if outline.source.gluon
        else ""
    )
    if known:
        sizes = ", ".join("?" if size is None else str(size) for size in known)
        return f"tensordesc<fp16[...]> with the element and the block; pre_hook of the first triton.Config sets [{sizes}]{layout}"
    return f"its element and block, such as tensordesc<fp16[64, 64]>, or constexprs of the configs in braces: tensordesc<fp16[{{BLOCK_M}}, 64]>{layout}"


# -- constexprs ------------------------------------------------------------------------------------------------------


def _computed(outline: Outline) -> set[str]:
    return {name for name, _ in outline.source.computed}


def _tiles(outline: Outline) -> list[Param]:
    """Return the constexprs that a config sets and that no decorator gives a value."""
    return [
        param
        for param in outline.source.params
        if param.constexpr
        and param.name not in _computed(outline)
        and (param.name in OPTIONS or (not outline.configs and _TILE_NAME.search(param.name)))
    ]


def _put_matrix(page: _Page, outline: Outline) -> None:
    tiles = {param.name for param in _tiles(outline)}
    given = [
        param for param in outline.source.params if param.constexpr and param.name not in tiles | _computed(outline)
    ]
    if not given:
        return
    page.table("[kernel.matrix]")
    page.note("values of the constexprs that callers pass: nojit builds the kernel for each")
    for param in given:
        if isinstance(param.default, Missing):
            asked = f"every value of {param.name} that callers pass, as an array: [64, 128] or [false, true]"
            page.put(param.name, f"[{page.ask(asked)}]")
        elif isinstance(param.default, bool):
            page.put(param.name, "[false, true]")
        else:
            page.put(
                param.name, f"[{toml_value(param.default)}]", "its default; add the other values that callers pass"
            )


def _put_derived(page: _Page, outline: Outline) -> None:
    derived = [one for one in outline.heuristics if one.name not in OPTIONS]
    if not derived:
        return
    page.table("[kernel.derived]")
    page.note("@triton.heuristics: nojit computes these from the call and the config")
    known = {param.name for param in outline.source.params}
    for one in derived:
        expression = _expression(one.text, known)
        if expression and is_boolean(tree_of(postfix(expression))):
            page.put(one.name, toml_text(expression), one.text)
            continue
        page.put(one.name, page.ask(_heuristic_question(one, expression)))


def _heuristic_question(one: Heuristic, expression: str) -> str:
    if expression:
        return f'a table {{ expr = "{expression}", values = [...] }} with every value of {one.name}, or only "{expression}" if it is a bool'
    said = f"what its heuristic computes: {one.text}" if one.text else "what its heuristic computes"
    return f"an expression for {one.name} (docs/manifest.md#derived-constexprs), {said}"


def _expression(text: str, known: set[str]) -> str:
    """Return a lambda of a heuristic as an expression of manifests; empty if it is none."""
    try:
        tree = ast.parse(text, mode="eval").body if text else None
        if not isinstance(tree, ast.Lambda) or len(tree.args.args) != 1:
            return ""
        spelled = ast.unparse(_Translation(tree.args.args[0].arg).visit(tree.body)).replace("True", "true")
        spelled = spelled.replace("False", "false").replace("None", "none")
        names = {node.id for node in ast.walk(ast.parse(spelled)) if isinstance(node, ast.Name)}
        functions = {*FUNCTIONS, "true", "false", "none"}
        tree_of(postfix(spelled))
    except (SyntaxError, ExpressionError, _UntranslatedError):
        return ""
    return spelled if names <= known | functions else ""


class _UntranslatedError(Exception):
    """Error: Python that is no expression of manifests."""


class _Translation(ast.NodeTransformer):
    """Turns the body of ``lambda args: ...`` into an expression of manifests."""

    _CALLS = {"cdiv": "cdiv", "next_power_of_2": "next_pow2", "min": "min", "max": "max"}  # noqa: RUF012 - never changed

    def __init__(self, args: str) -> None:
        self._args = args

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        match node:
            case ast.Subscript(value=ast.Name(id=self._args), slice=ast.Constant(value=str(name))):
                return ast.Name(name)
        raise _UntranslatedError

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        match node:
            case ast.Compare(ops=[ast.Is() | ast.IsNot() as op], comparators=[ast.Constant(value=None)]):
                has = ast.Call(ast.Name("has"), [self.visit(node.left)], [])
                return has if isinstance(op, ast.IsNot) else ast.UnaryOp(ast.Not(), has)
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        function = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if function not in self._CALLS or node.keywords:
            raise _UntranslatedError
        return ast.Call(ast.Name(self._CALLS[function]), [self.visit(each) for each in node.args], [])


# -- hints, configs, tuning ------------------------------------------------------------------------------------------


def _put_hints(page: _Page, outline: Outline, kinds: dict[str, str]) -> None:
    source = outline.source
    hintable = [name for name in kinds if name not in source.unspecialized | source.unaligned]
    pointers = [name for name in hintable if kinds[name] == "pointer"]
    ints = [name for name in hintable if kinds[name] == "int"]
    if not pointers and not ints:
        return
    page.lines.append("")
    page.note("faster variants for calls where 16 divides all of these; every other call runs without hints")
    if pointers:
        page.lines.append("[[kernel.hints]]")
        for name in pointers:
            page.put(name, "16")
    if ints:
        page.lines += ["", "[[kernel.hints]]"] if pointers else ["[[kernel.hints]]"]
        for name in (*pointers, *ints):
            page.put(name, "16")
        strides = [name for name in ints if "stride" in name]
        if strides:
            page.note(f"write 1 for a stride that is 1 in your calls: {', '.join(strides)}")


def _put_configs(page: _Page, outline: Outline) -> None:
    tiles = _tiles(outline)
    asked = [one for one in outline.heuristics if one.name in OPTIONS]
    configs = outline.configs or ((OutlinedConfig((), ()),) if tiles or asked else ())
    if not configs:
        return
    page.lines.append("")
    page.note(
        "tile sizes and options, which change only the speed; nojit prefers the first until one is measured (nojit tune)"
    )
    if outline.prune:
        page.note(
            f"the autotuner drops configs at run time by {', '.join(outline.prune)}: say that with `when` (facts of the build) and `requires` (facts of the call)"
        )
    for number, config in enumerate(configs):
        page.lines += ["", "[[kernel.configs]]"] if number else ["[[kernel.configs]]"]
        for name, value in config.constexprs:
            page.put(name, _setting(page, name, value))
        set_already = {name for name, _ in (*config.constexprs, *config.options)}
        for param in tiles:
            if param.name not in set_already:
                page.put(param.name, _tile(page, param))
        for one in asked:
            if one.name not in set_already:
                page.put(
                    one.name,
                    page.ask(f"the option {one.name}, which a heuristic computes: {one.text or 'see the source'}"),
                )
        for name, value in config.options:
            page.put(name, toml_value(value))


def _setting(page: _Page, name: str, value: Value | Unspelled) -> str:
    if isinstance(value, Unspelled):
        return page.ask(
            f'the value of {name}, in the triton.Config {value.shown}: a function is {{ function = "file.py:name" }}'
        )
    return toml_value(value)


def _tile(page: _Page, param: Param) -> str:
    if not isinstance(param.default, Missing):
        return toml_value(param.default)
    return page.ask(f"a value of {param.name}, such as 128; repeat [[kernel.configs]] for each that you want to offer")


def _put_tuning(page: _Page, outline: Outline) -> None:
    if not outline.key:
        return
    runtime = {param.name for param in outline.source.params if not param.constexpr}
    key, others = ([name for name in outline.key if (name in runtime) == is_runtime] for is_runtime in (True, False))
    page.lines.append("")
    page.note(f"@triton.autotune selects by {', '.join(outline.key)}. To have nojit tune measure and select by them:")
    page.note("[kernel.tuning]")
    page.note(
        f"key = {toml_texts(key)}"
        + (f"  # {', '.join(others)}: nojit selects for each value of the matrix anyway" if others else "")
    )
    page.note("[[kernel.tuning.space]]")
    names = dict.fromkeys(name for config in outline.configs for name, _ in (*config.constexprs, *config.options))
    for name in names or ("BLOCK",):
        page.note(f"{name} = [...]")
