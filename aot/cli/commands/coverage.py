"""``nojit coverage``: Compare a recording with bundles."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

import click
from nojit.aot.cli.console import PLACE, Arch, Output, counted, output_options
from nojit.aot.cli.exit_codes import EXIT_FAILED
from nojit.aot.inspect.places import bundles_at
from nojit.aot.recorded_builds.coverage import Checked, Coverage, coverage_of
from nojit.aot.recorded_builds.inputs import read_recordings
from nojit.runtime.errors import RecordingError

__all__ = ["command"]

# limit of missed specializations to name without -v
_MISSED = 20


@click.command("coverage")
@click.argument("recording", metavar="RECORDING", type=PLACE)
@click.argument("places", metavar="BUNDLE|DIR|WHEEL|NAME...", nargs=-1, required=True, type=PLACE)
@click.option(
    "--arch",
    "archs",
    multiple=True,
    type=Arch(),
    metavar="ARCH",
    help="Architecture of the devices, such as sm_90; repeatable; default: the recorded ones.",
)
@output_options
def command(out: Output, /, recording: Path, places: tuple[Path, ...], archs: tuple[str, ...]) -> int:
    """Compare a recording with bundles: which recorded specializations they serve, and why they miss the others.

    Nothing is launched, and no GPU is needed. A kernel is missed if no bundle has it, if its source drifted, or if it was not built for the
    architecture; a specialization, if no variant has its types, constexprs, options and at most its hints. The exit code is 1 if
    one is missed.
    """
    recorded = read_recordings([recording]).recording
    with ExitStack() as opened:
        found = [each for place in places for each in opened.enter_context(bundles_at(place)).places]
        bundles = [opened.enter_context(each.opened()) for each in found]
        coverage = coverage_of(recorded, bundles, tuple(dict.fromkeys(archs)))
    if not coverage.checked:
        what = "expected launches of kernels in the recording: run more of the program"
        raise RecordingError(what, got="none", where=str(recording))
    out.emit(
        "coverage",
        {
            "covered": not coverage.missed,
            "kernels": [asdict(each) for each in coverage.kernels],
            "specializations": [asdict(each) for each in coverage.checked],
        },
    )
    _show(out, coverage)
    return EXIT_FAILED if coverage.missed else 0


def _show(out: Output, coverage: Coverage) -> None:
    rows = [
        (
            each.kernel,
            f"{each.specializations:,}",
            f"{each.served:,}",
            f"{each.launches:,}",
            f"{each.launches_served:,}",
        )
        for each in coverage.kernels
    ]
    out.table(("kernel", ">specializations", ">served", ">launches", ">served"), rows)
    out.line()
    missed = sorted(coverage.missed, key=lambda each: -each.launches)
    for each in missed if out.verbosity > 0 else missed[:_MISSED]:
        _show_miss(out, each)
    if out.verbosity < 1 and len(missed) > _MISSED:
        out.warn(f"and {len(missed) - _MISSED:,} more: -v shows all")
    fewer = sum(each.fewer_hints for each in coverage.checked)
    if fewer:
        out.line(f"{counted(fewer, 'specialization')} served by a variant with fewer hints")
    served = len(coverage.checked) - len(missed)
    style = "red" if missed else "green"
    out.line(f"{served:,} of {counted(len(coverage.checked), 'specialization')} served", style=style)


def _show_miss(out: Output, each: Checked) -> None:
    launches = f"{each.launches:,} {'launch' if each.launches == 1 else 'launches'}"
    out.warn(f"MISS {each.kernel} {each.arch}, {launches}: {each.reason}")
    out.warn(f"  | {each.label}")
