"""``nojit build``: what it is asked, and what it says where nothing has changed. `nojit.aot.cli.build` does the rest."""

from __future__ import annotations

import os
import re
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
from nojit.aot.cache import default_cache_folder
from nojit.aot.cli.build_report import Failures, show_result
from nojit.aot.cli.console import PLACE, Arch, Number, Output, output_options
from nojit.aot.defaults import LOCAL_BUILDER, MAX_VARIANTS
from nojit.aot.stamp import Stamp, asked_of, changes, find_stamp

__all__ = ["Request", "command"]

_MANIFESTS = Path("manifests")
_ARTIFACTS = Path("artifacts")


@dataclass(frozen=True, slots=True)
class Request:
    """What the command line asks for."""

    places: tuple[Path, ...]
    archs: tuple[str, ...]
    profile: str | None
    kernels: tuple[str, ...]
    folder: Path
    cache_folder: Path
    jobs: int
    timeout_s: float
    keep_going: bool
    most: int
    tuning: bool
    tuned: bool
    min_driver: int | None
    build_number: int | None
    builder: str | None
    twins: bool
    ptxas: Path | None
    dry_run: bool

    def document(self) -> dict[str, Any]:
        """Return what is asked for as JSON holds it."""
        places = {"places": list(map(str, self.places)), "ptxas": self.ptxas and str(self.ptxas)}
        return {**asdict(self), **places, "folder": str(self.folder), "cache_folder": str(self.cache_folder)}


def _uri(_context: click.Context, _option: click.Parameter, text: str | None) -> str | None:
    if text is not None and not re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*:\S+", text):
        raise click.BadParameter(f"expected a URI such as https://ci.example/kernels, got {text!r}")
    return text


def _cuda(_context: click.Context, _option: click.Parameter, text: str | None) -> int | None:
    if text is None:
        return None
    from nojit.aot.ptxas import parse_cuda  # noqa: PLC0415 - seldom asked for, and it imports what starts programs

    try:
        return parse_cuda(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command("build")
@click.argument("places", metavar="[MANIFEST|DIR]...", nargs=-1, type=PLACE)
@click.option("--arch", "archs", multiple=True, type=Arch(), metavar="ARCH", help="Build for this; repeatable.")
@click.option(
    "--profile",
    type=click.Choice(["core", "full"]),
    help="How many variants; default full, or what the bundle in place has if other kernels of it are kept.",
)
@click.option(
    "--kernel",
    "kernels",
    multiple=True,
    metavar="K",
    help="Build this kernel, and what else the bundle in place holds; repeatable.",
)
@click.option("--tuning", is_flag=True, help="Build tuning bundles instead: every config of the kernels' spaces.")
@click.option("--no-tuned", "untuned", is_flag=True, help="Ignore the tuned tables beside the manifests.")
@click.option(
    "--out",
    "folder",
    type=PLACE,
    help="Folder of the bundles; default artifacts, with --tuning artifacts/tuning.",
)
@click.option("-j", "--jobs", type=click.IntRange(1), help="How many compile at once; default: every CPU.")
@click.option("-k", "--keep-going", is_flag=True, help="Leave out variants that fail and build the rest.")
@click.option("-n", "--dry-run", is_flag=True, help="Check manifests against sources and count; write nothing.")
@click.option(
    "--timeout",
    # the clock that workers are waited for by counts no further than some 300 years
    type=Number(0, 1e6, min_open=True),
    default=300.0,
    metavar="S",
    help="Give up on a variant, or on the import of a source, after S seconds; default 300.",
)
@click.option(
    "--max-variants",
    type=click.IntRange(1),
    default=MAX_VARIANTS,
    metavar="N",
    help=f"Refuse a kernel that comes to more for one architecture, before `exclude`; default {MAX_VARIANTS:,}.",
)
@click.option(
    "--debug-info",
    type=click.Choice(["none", "twin"]),
    default="none",
    help="twin: also build each bundle with line info, into OUT/debug; default none.",
)
@click.option(
    "--build-number",
    type=click.IntRange(0),
    metavar="N",
    help="Release, for the statement; by default that of the statement which lies there, or 0.",
)
@click.option("--builder", metavar="URI", callback=_uri, help=f"Who builds, for the statement; else {LOCAL_BUILDER}.")
@click.option(
    "--min-driver", metavar="CUDA", callback=_cuda, help="Build what a driver for this CUDA version, say 12.4, loads."
)
@click.option("--ptxas", type=PLACE, help="Assemble with this one instead of Triton's.")
@click.option(
    "--recheck", is_flag=True, help="Look at every source again, also where nothing has changed since the last build."
)
@click.option("--cache-dir", type=PLACE, help="Cache of compiled variants; or NOJIT_CACHE_DIR.")
@output_options
def command(  # noqa: PLR0917 - click passes each by name
    out: Output,
    places: tuple[Path, ...],
    archs: tuple[str, ...],
    profile: str | None,
    kernels: tuple[str, ...],
    tuning: bool,
    untuned: bool,
    folder: Path | None,
    jobs: int | None,
    keep_going: bool,
    dry_run: bool,
    timeout: float,
    max_variants: int,
    debug_info: str,
    build_number: int | None,
    builder: str | None,
    min_driver: int | None,
    ptxas: Path | None,
    recheck: bool,
    cache_dir: Path | None,
) -> int:
    """Compile manifests into bundles, one file per bundle and architecture: OUT/<name>-<version>-<arch>.nojit.

    Without arguments: every manifest in manifests/, for the architectures that the manifests name. What the cache has
    is not compiled again, and a bundle that is up to date is left alone. Needs no GPU. Beside each bundle lie a report
    and a provenance statement, which `nojit sign` signs. Where no file, setting or argument has changed since the last build, sources
    are not even imported; --recheck imports them.

    With --kernel, or with some manifests of a folder, the other kernels of the bundle in place stay in it, as it was built: by its
    profile, unless --profile says the same, and from the cache unless their sources changed. In an --out folder without that bundle the
    kernels are built alone. A new version leaves the old file, which `nojit clean` deletes.

    Kernels with tuned tables, in a folder tuned/ beside their manifest, are built with the configs of these tables. With
    --tuning each kernel that has a space is built with all its configs, aligned calls only, into a bundle
    <name>-tuning that `nojit tune run` measures; configs that cannot run or spill too much are left out and counted.

    With --debug-info=twin each bundle is also built with line info, into OUT/debug: a twin <name>-debug that
    NOJIT_DEBUG_INFO loads instead, for profilers and debuggers.

    A driver loads images of its own CUDA major version's toolkits. With --min-driver 12.0 and Triton's ptxas of CUDA 13 for an
    architecture, Triton's other one of CUDA 12 assembles, or --ptxas.
    """
    if tuning and profile == "core":
        raise click.UsageError("expected --profile full with --tuning, got core: a space has no profiles")
    request = Request(
        places=places or (_MANIFESTS,),
        archs=tuple(dict.fromkeys(archs)),
        profile=profile,
        kernels=kernels,
        folder=folder or (_ARTIFACTS / "tuning" if tuning else _ARTIFACTS),
        cache_folder=cache_dir or default_cache_folder(),
        jobs=jobs or len(os.sched_getaffinity(0)),
        timeout_s=timeout,
        keep_going=keep_going,
        most=max_variants,
        tuning=tuning,
        tuned=not untuned,
        min_driver=min_driver,
        build_number=build_number,
        builder=builder,
        twins=debug_info == "twin",
        ptxas=ptxas,
        dry_run=dry_run,
    )
    started = time.monotonic()
    # a dry run tells more than a stamp holds
    asked = "" if dry_run else asked_of(request.document())
    stamp = None if dry_run or recheck else find_stamp(request.cache_folder, asked)
    if stamp is not None:
        _show(out, stamp, request.folder, started)
        return 0
    if out.verbosity > 0 and not recheck:
        for place in changes(request.cache_folder, asked):
            out.note(f"changed since the last build: {place}")
    from nojit.aot.cli.build import run  # noqa: PLC0415 - slow to import, and seldom needed where nothing changes

    return run(out, request, asked)


def _show(out: Output, stamp: Stamp, folder: Path, started: float) -> None:
    """Say what a build says that finds everything up to date."""
    for kind, words in stamp.told:
        if kind == "warn" and out.quiet:
            out.warn(words)
        else:
            out.note(words)
    show_result(out, stamp.done, folder, time.monotonic() - started, Failures(out))
