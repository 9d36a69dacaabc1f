"""The generated parts of docs/cli.md and docs/json-output.md: commands with their options, and the types of their JSON."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from dataclasses import fields

import click
from nojit.aot import report
from nojit.aot.bench import cold_start, launch
from nojit.aot.cli.group import COMMANDS, MODULES
from nojit.aot.compile import cache
from nojit.aot.inspect import choice, contents, diff, doctor, statement
from nojit.aot.plan import left_out
from nojit.aot.trust import sign
from nojit.aot.tune import account, evaluate, importance, order, records
from nojit.aot.tune import report as tune_report

__all__ = ["FACTS", "command_of", "render_commands", "render_facts"]

FACTS = (
    left_out.Absence,
    report.BundleReport,
    report.VariantReport,
    report.Failure,
    left_out.Pruned,
    cache.Misfit,
    contents.BundleFacts,
    contents.KernelFacts,
    contents.VariantFacts,
    statement.ProvenanceFacts,
    sign.NewKey,
    sign.SignedBundle,
    diff.BundleDiff,
    diff.KernelDiff,
    diff.VariantChange,
    diff.Change,
    doctor.DriverState,
    choice.BundleState,
    choice.DeviceChoice,
    doctor.TuningState,
    doctor.CacheState,
    launch.LaunchBench,
    launch.LaunchFigure,
    launch.Unmeasured,
    cold_start.ColdStartBench,
    cold_start.StartFigure,
    cold_start.StartStage,
    cold_start.Unstarted,
    order.TuneRun,
    order.ProblemRun,
    records.Device,
    account.TableFacts,
    account.GroupFacts,
    account.CurveStep,
    account.QualityFacts,
    evaluate.Evaluation,
    evaluate.ProblemShare,
    evaluate.Drift,
    tune_report.ClassFacts,
    tune_report.BestFacts,
    tune_report.HeatMap,
    importance.Importance,
    importance.Share,
)

_COMMON = {"as_json", "quiet", "verbose", "help"}


def command_of(name: str, inner: str = "") -> click.Command:
    """Load a command, or one that it groups."""
    command: click.Command = importlib.import_module(f"nojit.aot.cli.{MODULES.get(name, name)}").command
    if inner:
        assert isinstance(command, click.Group)
        found = command.get_command(click.Context(command), inner)
        assert found is not None, f"no command {name} {inner}"
        return found
    return command


def render_commands() -> str:
    """Write a section for each command: usage, what it does, options but the common ones."""
    return "\n" + "\n".join(_command(name, command_of(name)) for name in COMMANDS)


def _command(name: str, command: click.Command) -> str:
    context = click.Context(command, info_name=f"nojit {name}", help_option_names=["-h", "--help"])
    usage = " ".join([f"nojit {name}", *command.collect_usage_pieces(context)])
    text = f"### nojit {name}\n\n```text\n{usage}\n```\n\n{_paragraphs(command.help or '')}\n"
    options = [_option(option, context) for option in command.params if isinstance(option, click.Option)]
    rows = [row for row in options if row]
    if rows:
        text += "\n| option | meaning |\n|---|---|\n" + "".join(rows)
    inner = command.list_commands(context) if isinstance(command, click.Group) else []
    return "\n".join([text, *(_command(f"{name} {own}", command_of(name, own)) for own in inner)])


def _paragraphs(text: str) -> str:
    parts = []
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        if paragraph.startswith("\b"):
            # click keeps the lines of such a paragraph as they are
            parts.append("```text\n" + paragraph.removeprefix("\b\n") + "\n```")
        else:
            parts.append(paragraph.replace("<", "\\<"))
    return "\n\n".join(parts)


def _option(option: click.Option, context: click.Context) -> str:
    if option.name in _COMMON:
        return ""
    names = ", ".join(f"`{name}`" for name in [*option.opts, *option.secondary_opts])
    value = "N" if isinstance(option.type, click.IntRange) else option.make_metavar(context).strip("[]")
    shown = "" if option.is_flag else f" `{value}`".replace("|", "\\|")
    return f"| {names}{shown} | {option.help or ''} |\n"


def render_facts() -> str:
    """Write a table for each type."""
    return "\n" + "\n".join(_facts(kind) for kind in FACTS)


def _facts(kind: type) -> str:
    said = dict(_docstrings(kind))
    title = _json_words(inspect.cleandoc(kind.__doc__ or "").splitlines()[0])
    lines = [f"| `{field.name}` | {_kind(str(field.type))} | {said.get(field.name, '')} |\n" for field in fields(kind)]
    return f"### {kind.__name__}\n\n{title}\n\n| field | type | meaning |\n|---|---|---|\n{''.join(lines)}"


def _docstrings(kind: type) -> Iterator[tuple[str, str]]:
    """Find the string below each field; Python itself forgets it."""
    (body,) = (node for node in ast.parse(inspect.getsource(kind)).body if isinstance(node, ast.ClassDef))
    for field, below in zip(body.body, body.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            yield ast.unparse(field.target), _json_words(str(below.value.value))


def _json_words(text: str) -> str:
    return " ".join(text.replace("``", "`").replace("None", "null").split())


def _kind(annotation: str) -> str:
    """Spell a Python type in words of JSON."""
    if pairs := re.fullmatch(r"tuple\[tuple\[(\w+), (\w+)\], \.\.\.\]", annotation):
        return f"array of [{_kind(pairs[1])}, {_kind(pairs[2])}]"
    if items := re.fullmatch(r"tuple\[(\w+), \.\.\.\]", annotation):
        return f"array of {_kind(items[1])}"
    words = {"str": "string", "int": "int", "bool": "bool", "int | None": "int or null", "Json": "any"}
    words |= {"float": "number", "float | None": "number or null"}
    words |= {"bool | None": "bool or null", "str | None": "string or null"}
    words["dict[str, str]"] = "object of strings"
    return words.get(annotation, annotation)
