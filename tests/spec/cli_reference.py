"""The generated parts of docs/cli.md and docs/json-output.md: commands with their options, and the types of their JSON."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterator
from dataclasses import fields

import click
from nojit.aot.bench import cold_start, launch
from nojit.aot.cache import cache, upkeep
from nojit.aot.cli.group import cli
from nojit.aot.inspect import contents, device_choice, diff, doctor
from nojit.aot.oci import pull
from nojit.aot.pipeline import report, targets, tuned_spills
from nojit.aot.provenance import statement
from nojit.aot.recorded_builds import coverage
from nojit.aot.signing import sign
from nojit.aot.tune.measure import request
from nojit.aot.tune.report import importance
from nojit.aot.tune.report import measurements as tune_report
from nojit.aot.tune.select import evaluate, summaries
from nojit.aot.tune.store import records
from nojit.aot.variants import left_out

__all__ = ["FACTS", "command_of", "render_commands", "render_facts"]

FACTS = (
    left_out.Absence,
    report.BundleReport,
    report.VariantReport,
    report.Failure,
    left_out.Pruned,
    tuned_spills.TunedSpill,
    targets.KernelTarget,
    cache.CacheUse,
    cache.Misfit,
    upkeep.CacheFacts,
    upkeep.OldEntries,
    upkeep.RefusedEntry,
    coverage.KernelCoverage,
    coverage.Checked,
    contents.BundleFacts,
    contents.RecordingFacts,
    contents.RecordedFacts,
    contents.AttachmentFacts,
    contents.KernelFacts,
    contents.VariantFacts,
    statement.ProvenanceFacts,
    sign.NewKey,
    sign.SignedBundle,
    pull.Received,
    diff.BundleDiff,
    diff.KernelDiff,
    diff.VariantChange,
    diff.Change,
    doctor.DriverState,
    device_choice.BundleState,
    device_choice.DeviceChoice,
    doctor.TuningState,
    doctor.CacheState,
    launch.LaunchBench,
    launch.LaunchFigure,
    launch.Unmeasured,
    cold_start.ColdStartBench,
    cold_start.StartFigure,
    cold_start.StartStage,
    cold_start.Unstarted,
    request.TuneRun,
    request.ProblemRun,
    records.Device,
    summaries.TableFacts,
    summaries.GroupFacts,
    summaries.CurveStep,
    summaries.QualityFacts,
    evaluate.Evaluation,
    evaluate.ProblemShare,
    evaluate.Drift,
    tune_report.ClassFacts,
    tune_report.BestFacts,
    tune_report.HeatMap,
    importance.Importance,
    importance.Share,
)

_MEANINGS = {
    "added": "Variants that only the second bundle has.",
    "after": "Value in the second bundle.",
    "arch": "GPU architecture, such as `sm_90`.",
    "attachments": "The attachments.",
    "before": "Value in the first bundle.",
    "best": "The fastest config of each problem.",
    "best_ms": "The fastest process, in milliseconds.",
    "best_us": "Time of the fastest config, in microseconds.",
    "builder": "The tool that built the bundle.",
    "build_number": "Orders releases: higher is later.",
    "bundle": "Path of the bundle.",
    "bundle_bytes": "Size of the bundle.",
    "changed": "Variants of both bundles that differ.",
    "changes": "The facts that differ.",
    "config": "Label of the config.",
    "contender": "Name of the contender.",
    "content_bytes": "Size of its bytes, uncompressed.",
    "curve": "The best portfolio of each size.",
    "dtype": "dtype of the problem.",
    "dtypes": "dtypes that the portfolio serves.",
    "exists": "Whether the folder exists.",
    "failed": "Number of configs that raised an error.",
    "failures": "Variants that did not compile.",
    "figures": "The measurements.",
    "file_bytes": "Size of the file.",
    "first": "Config that the first run selects.",
    "heat": "Costs by the two most important tunables; null with fewer than two.",
    "id": "Identifier: the first hex digits of a digest.",
    "image_arch": "Architecture of the images, such as `sm_90a`.",
    "image_bytes": "Size of the image.",
    "image_sha256": "SHA-256 of the image.",
    "kernel": "Name of the kernel.",
    "key_id": "Hash of the public key.",
    "label": "The variant as text: types, hints, constexprs and options.",
    "levels": "Values of the first and of the second tunable.",
    "log": "Output of the compiler.",
    "memory_bytes": "Memory of the device.",
    "message": "The error.",
    "min_driver": "Oldest driver that runs the images, as its CUDA version: 12080 for 12.8.",
    "multiprocessors": "Number of multiprocessors (SMs).",
    "name": "Name.",
    "names": "The two tunables.",
    "num_ctas": "Blocks of a cluster.",
    "num_warps": "Warps of a block.",
    "origin": "How the bundle was found.",
    "path": "Path of the file or folder.",
    "problem": "Name of the problem.",
    "reason": "Why.",
    "registers": "Registers of a thread.",
    "registers_max": "Most registers of a thread, over the variants.",
    "registers_min": "Fewest registers of a thread, over the variants.",
    "removed": "Variants that only the first bundle has.",
    "samples": "Number of times.",
    "second": "Config that the second run selects.",
    "seconds": "Duration.",
    "shape_class": "Class of shapes of the problem.",
    "shared_bytes": "Shared memory of a block.",
    "size_bytes": "Total size.",
    "spill_bytes": "Spilled registers of a thread.",
    "toolchain": "Versions of the tools.",
    "unmeasured": "Contenders without a measurement.",
    "us": "Time in microseconds.",
    "use": "Use of the problem, such as `tune` or `held_out`.",
    "version": "Version of the bundle.",
    "way": "Name of the contender.",
    "where": "Place of the error.",
    "worst_ms": "The slowest process, in milliseconds.",
    "worst_share": "Lowest share of any problem.",
    "wrong": "Number of configs with wrong results.",
}
"""Meanings of fields without a docstring of their own."""

_COUNTED = {"arguments", "configs", "entries", "groups", "kernels", "problems", "rounds", "rows", "variants"}

_COMMON = {"as_json", "quiet", "verbose", "help"}


def command_of(name: str, inner: str = "") -> click.Command:
    """Load a command, or one that it groups."""
    command: click.Command = importlib.import_module(f"nojit.aot.cli.commands.{name}").command
    if inner:
        assert isinstance(command, click.Group)
        found = command.get_command(click.Context(command), inner)
        assert found is not None, f"no command {name} {inner}"
        return found
    return command


def render_commands() -> str:
    """Write a section for each command: usage, what it does, options but the common ones."""
    return "\n" + "\n".join(_command(name, command_of(name)) for name in cli.list_commands(click.Context(cli)))


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
    meanings = dict(_docstrings(kind))
    title = _json_words(inspect.cleandoc(kind.__doc__ or "").splitlines()[0])
    lines = [
        f"| `{field.name}` | {_kind(str(field.type))} | {meanings.get(field.name) or _meaning(field.name, _kind(str(field.type)))} |\n"
        for field in fields(kind)
    ]
    return f"### {kind.__name__}\n\n{title}\n\n| field | type | meaning |\n|---|---|---|\n{''.join(lines)}"


def _meaning(name: str, kind: str) -> str:
    """Return the meaning of a field without a docstring."""
    if name == "device":
        return {"string": "Name of the device.", "int": "Index of the device."}.get(kind, "The device.")
    if name in _COUNTED:
        return f"Number of {name}." if kind == "int" else f"The {name}."
    return _MEANINGS[name]


def _docstrings(kind: type) -> Iterator[tuple[str, str]]:
    """Find the string below each field; Python itself forgets it."""
    (body,) = (node for node in ast.parse(inspect.getsource(kind)).body if isinstance(node, ast.ClassDef))
    for field, below in zip(body.body, body.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            yield ast.unparse(field.target), _json_words(str(below.value.value))


def _json_words(text: str) -> str:
    return " ".join(text.replace("``", "`").replace("None", "null").replace("False", "false").split())


def _kind(annotation: str) -> str:
    """Spell a Python type in words of JSON."""
    return _json_type(ast.parse(annotation, mode="eval").body)


def _json_type(node: ast.expr) -> str:
    words = {"None": "null", "str": "string", "int": "int", "bool": "bool", "float": "number", "Json": "any"}
    if isinstance(node, ast.BinOp):
        return f"{_json_type(node.left)} or {_json_type(node.right)}"
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple):
        items = [_json_type(item) for item in node.slice.elts if not _is_ellipsis(item)]
        if ast.unparse(node.value) == "dict":
            return f"object of {items[1]}s"
        if not _is_ellipsis(node.slice.elts[-1]):
            return f"[{', '.join(items)}]"
        return f"array of ({items[0]})" if " or " in items[0] else f"array of {items[0]}"
    name = ast.unparse(node)
    return words.get(name, f"[{name}](#{name.lower()})")


def _is_ellipsis(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is Ellipsis
