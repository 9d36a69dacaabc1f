"""``nojit diff``: Compare two bundles, or two recordings."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from nojit.aot.cli.console import PLACE, Output, counted, driver_version, output_options, size
from nojit.aot.cli.exit_codes import EXIT_FAILED
from nojit.aot.inspect.contents import VariantFacts, config_words, open_bundle
from nojit.aot.inspect.diff import BundleDiff, Change, KernelDiff, VariantChange, diff_bundles
from nojit.aot.recorded_builds.compare import Difference, compare_recordings
from nojit.aot.recorded_builds.inputs import is_recording, read_recordings
from nojit.runtime.base.strict_json import Json
from nojit.runtime.errors import RecordingError
from nojit.runtime.table.parts import Config
from nojit.runtime.values import decode_value

__all__ = ["command"]

_STYLES = {"added": "green", "removed": "red", "changed": "yellow"}
# text of changed facts; digests are shortened as in other commands
_SPELLED: dict[str, Callable[[Any], str]] = {"min_driver": driver_version, "digest": lambda digest: str(digest)[:12]}
_SIGNS = {"added": "+", "removed": "-", "changed": "~"}


@click.command("diff")
@click.argument("before", metavar="A", type=PLACE)
@click.argument("after", metavar="B", type=PLACE)
@click.option("--exit-code", is_flag=True, help="Exit with 1 if the two differ.")
@click.option(
    "--ignore-tuning", is_flag=True, help="Of recordings, leave out what another choice of an autotuner explains."
)
@output_options
def command(out: Output, before: Path, after: Path, exit_code: bool, ignore_tuning: bool) -> int:
    """Compare two bundles, or two recordings.

    Of bundles: kernels and variants that B adds, removes or changes in registers, spills, toolchain or code. Variants that differ only in
    machine code are counted; -v lists them, and every added or removed variant.

    Of recordings: kernels, sources, specializations, winners, numbers of launches and problems that differ, such as those of a live run
    and of one with --fake. --ignore-tuning leaves out what differs because an autotuner chose another config.
    """
    kinds = is_recording(before), is_recording(after)
    if any(kinds):
        if not all(kinds):
            other = after if kinds[0] else before
            got = "one of each" if other.exists() else f"no such path as {other}"
            raise RecordingError("expected two recordings or two bundles", got=got, where=f"{before}, {after}")
        return _compare_recordings(out, before, after, exit_code=exit_code, ignore_tuning=ignore_tuning)
    with open_bundle(before) as old, open_bundle(after) as new:
        diff = diff_bundles(old, new)
    out.emit("diff", {"before": str(before), "after": str(after), **asdict(diff)})
    _show(out, diff)
    return EXIT_FAILED if exit_code and not diff.identical else 0


def _compare_recordings(out: Output, before: Path, after: Path, *, exit_code: bool, ignore_tuning: bool) -> int:
    found = compare_recordings(*(read_recordings([place]).recording for place in (before, after)))
    shown = [each for each in found if not (ignore_tuning and each.tuned)]
    out.emit("diff", {"before": str(before), "after": str(after), "differences": [asdict(each) for each in shown]})
    for each in shown:
        _show_difference(out, each)
    left_out = len(found) - len(shown)
    explained = f"; {counted(left_out, 'difference')} left out that tuning explains" if left_out else ""
    out.line(f"{counted(len(shown), 'difference') if shown else 'no differences'}{explained}")
    return EXIT_FAILED if exit_code and shown else 0


def _show_difference(out: Output, each: Difference) -> None:
    out.line(f"{each.kind} {each.kernel}".rstrip(), style="yellow")
    out.line(f"    {each.what}")
    out.line(f"    {each.before} -> {each.after}")


def _show(out: Output, diff: BundleDiff) -> None:
    if diff.identical:
        out.line("identical, byte for byte")
        return
    for change in diff.facts:
        spelled = _SPELLED.get(change.name.rpartition(".")[2], str)
        out.line(f"{change.name}: {_arrow(change, spelled)}", style="yellow")
    for change in diff.attachments:
        out.line(f"attachment {change.name}: {_arrow(change, _SPELLED['digest'])}", style="yellow")
    for kernel in diff.kernels:
        if kernel.status != "same":
            _show_kernel(out, kernel)
    if diff.alike:
        out.line("the same kernels, variants and images, packed differently")
        return
    differing = sum(kernel.status != "same" for kernel in diff.kernels)
    same = sum(kernel.same for kernel in diff.kernels)
    verb = "differs" if len(diff.kernels) == 1 else "differ"
    out.line(f"{differing} of {counted(len(diff.kernels), 'kernel')} {verb}; {counted(same, 'variant')} alike")


def _show_kernel(out: Output, kernel: KernelDiff) -> None:
    out.line(f"{_SIGNS[kernel.status]} {kernel.name}: {', '.join(_counts(kernel))}", style=_STYLES[kernel.status])
    for change in kernel.definition:
        _show_definition(out, change)
    if out.verbosity > 0:
        _show_variants(out, "+", kernel.added)
        _show_variants(out, "-", kernel.removed)
    shown = [change for change in kernel.changed if out.verbosity > 0 or not change.image_only]
    _show_changes(out, shown)


def _show_definition(out: Output, change: Change) -> None:
    if change.name == "tuning":
        same = _tuning(change.before) == _tuning(change.after)
        out.line(f"    tuning: {'other configs or problems' if same else _arrow(change, _tuning)}")
        return
    if not isinstance(change.before, list) or not isinstance(change.after, list):
        out.line(f"    {change.name}: {_arrow(change, _compact)}")
        return
    spelled = _config if change.name == "configs" else _compact
    gone = [item for item in change.before if item not in change.after]
    come = [item for item in change.after if item not in change.before]
    for sign, items in (("-", gone), ("+", come)):
        for item in items:
            out.line(f"    {change.name} {sign} {spelled(item)}")
    if not gone and not come:
        out.line(f"    {change.name}: in another order")


def _config(value: Any) -> str:
    """Return a config as text, as `nojit inspect` shows it."""
    constexprs, options = (
        tuple((name, decode_value(each, name)) for name, each in value[kind]) for kind in ("constexprs", "options")
    )
    return config_words(Config(constexprs, options, value["requires"]))


def _tuning(value: Any) -> str:
    """Return a tuning as text without its tables, which can have thousands of numbers."""
    if value is None:
        return "none"
    tables = [
        f"{table['device']['name']} ({counted(sum(len(block['rows']) for block in table['blocks']), 'problem')})"
        for table in value["tables"]
    ]
    return f"by {', '.join(value['key'])}, {value['bucket']} buckets, {', '.join(tables) or 'no tables'}"


def _counts(kernel: KernelDiff) -> Iterator[str]:
    if kernel.added:
        yield f"{counted(len(kernel.added), 'variant')} added"
    if kernel.removed:
        yield f"{counted(len(kernel.removed), 'variant')} removed"
    if kernel.changed:
        code = sum(change.image_only for change in kernel.changed)
        yield f"{len(kernel.changed):,} changed" + (f" ({code:,} in code only)" if code else "")
    if kernel.status == "changed":
        yield f"{kernel.same:,} alike"


def _show_variants(out: Output, sign: str, variants: Iterable[VariantFacts]) -> None:
    for variant in variants:
        out.line(f"    {sign} {variant.id}  {variant.label}", style=_STYLES["added" if sign == "+" else "removed"])


def _show_changes(out: Output, changes: Sequence[VariantChange]) -> None:
    rows = []
    named: tuple[str, ...] = ("registers", "spill_bytes", "shared_bytes")
    headings: tuple[str, ...] = (">regs", ">spill B", ">shared B", ">code", "variant")
    if any(fact.name == "toolchain" for change in changes for fact in change.changes):
        named, headings = ("toolchain", *named), ("toolchain", *headings)
    for change in changes:
        by_name = {fact.name: fact for fact in change.changes}
        code = "other" if "image_sha256" in by_name else "same"
        cells = (_cell(by_name.get(name)) for name in named)
        sizes = by_name.get("image_bytes")
        rows.append((*cells, _arrow(sizes, size) if sizes else code, change.label))
    if rows:
        out.table(headings, rows, indent=4)


def _cell(change: Change | None) -> str:
    return (
        ""
        if change is None
        else _arrow(change, lambda value: f"{value:,}" if isinstance(value, int) else value or "none")
    )


def _arrow(change: Change, spelled: Callable[[Any], str]) -> str:
    before, after = ("none" if value is None else spelled(value) for value in (change.before, change.after))
    return f"{before} -> {after}"


def _compact(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
