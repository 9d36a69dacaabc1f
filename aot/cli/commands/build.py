"""``nojit build``: Compile manifests and recordings into bundles."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click
from nojit.aot.backends.registry import parse_driver
from nojit.aot.base.defaults import BUNDLE_NAME, BUNDLE_NAME_WORDS, LOCAL_BUILDER, MAX_VARIANTS
from nojit.aot.cache.folder import default_cache_folder
from nojit.aot.cli.building.build_results import Failures, show_result
from nojit.aot.cli.console import JOBS, PLACE, Arch, Number, Output, given_option, output_options
from nojit.aot.cli.options.assemblers import assembler_options, given_assemblers
from nojit.aot.cli.options.build_request import Request
from nojit.aot.cli.options.caches import given_shared, shared_options
from nojit.aot.cli.options.executors import executor_option, given_executor
from nojit.aot.cli.options.toolchains import toolchain_option
from nojit.aot.pipeline.stamp_file import asked_of
from nojit.aot.pipeline.up_to_date import Stamp, changes, find_stamp
from nojit.runtime.base.wording import few

__all__ = ["command"]

# limit of changed files to name in a line
_FEW = 8
_MANIFESTS = Path("manifests")
_ARTIFACTS = Path("artifacts")
# params of the options that affect only recordings, or only manifests
_OF_RECORDINGS: Final = ("name", "trials")
_OF_MANIFESTS: Final = ("profile", "tuning", "retune", "untuned", "max_variants")


def _uri(_context: click.Context, _option: click.Parameter, text: str | None) -> str | None:
    if text is not None and not re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*:\S+", text):
        raise click.BadParameter(f"expected a URI such as https://ci.example/kernels, got {text!r}")
    return text


def _name(_context: click.Context, _option: click.Parameter, text: str | None) -> str | None:
    if text is not None and not re.fullmatch(BUNDLE_NAME, text):
        raise click.BadParameter(f"expected {BUNDLE_NAME_WORDS}, got {text!r}")
    return text


def _driver(_context: click.Context, _option: click.Parameter, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return parse_driver(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command("build")
@click.argument("places", metavar="[MANIFEST|RECORDING|DIR]...", nargs=-1, type=PLACE)
@click.option(
    "--arch",
    "archs",
    multiple=True,
    type=Arch(families=True),
    metavar="ARCH",
    help="Architecture to build for, such as sm_90, or a family of them, such as sm_100f; repeatable.",
)
@click.option(
    "--profile",
    type=click.Choice(["core", "full"]),
    help="Variants to build; default full, or the profile of the existing bundle if its other kernels are kept.",
)
@click.option(
    "--kernel",
    "kernels",
    multiple=True,
    metavar="K",
    help="Build only this kernel; keep the others of the existing bundle; repeatable.",
)
@click.option(
    "--name",
    metavar="NAME",
    callback=_name,
    help="Name of the bundle of recordings; default: that of the first recording.",
)
@click.option("--trials", is_flag=True, help="Also build what only an autotuner's trials launched in recordings.")
@click.option("--tuning", is_flag=True, help="Build tuning bundles instead: every config of the tuning spaces.")
@click.option(
    "--retune",
    is_flag=True,
    help="As --tuning, but only with the configs of the manifests and the tuned tables: to measure them again.",
)
@click.option("--no-tuned", "untuned", is_flag=True, help="Ignore the tuned tables beside the manifests.")
@click.option(
    "--out",
    "folder",
    type=PLACE,
    help="Output folder; default artifacts, with --tuning artifacts/tuning.",
)
@click.option("-j", "--jobs", type=JOBS, help="Parallel compilations; default: one per CPU.")
@click.option("-k", "--keep-going", is_flag=True, help="Skip variants that fail and build the rest.")
@click.option(
    "-n",
    "--dry-run",
    is_flag=True,
    help="Check manifests against sources and count variants; compile and write nothing.",
)
@click.option(
    "--plan",
    "plan_",
    is_flag=True,
    help="Compile, and show for each kernel the target that runs on most chips at no cost; write no bundle.",
)
@click.option(
    "--timeout",
    # the clock for waiting overflows after about 300 years
    type=Number(0, 1e6, min_open=True),
    default=300.0,
    metavar="S",
    help="Time limit for a variant or the import of a source, in seconds; default 300.",
)
@click.option(
    "--max-variants",
    type=click.IntRange(1),
    default=MAX_VARIANTS,
    metavar="N",
    help=f"Limit on a kernel's variants for one architecture, before `exclude`; default {MAX_VARIANTS:,}.",
)
@click.option(
    "--debug-info",
    type=click.Choice(["none", "twin"]),
    default="none",
    help="twin: also build each bundle with line info into OUT/debug; default none.",
)
@click.option(
    "--build-number",
    type=click.IntRange(0),
    metavar="N",
    help="Build number for the provenance statement; default: that of the existing statement, or 0.",
)
@click.option(
    "--builder", metavar="URI", callback=_uri, help=f"Builder for the provenance statement; default {LOCAL_BUILDER}."
)
@click.option(
    "--min-driver",
    metavar="CUDA",
    callback=_driver,
    help="Oldest CUDA version whose driver must load the images, such as 12.4.",
)
@toolchain_option(
    "Version of Triton to compile with, and the virtual environment that has it; repeatable, the default one first."
)
@assembler_options("{} to use instead of Triton's.")
@click.option(
    "--recheck", is_flag=True, help="Import every source again, even if nothing has changed since the last build."
)
@click.option("--cache-dir", type=PLACE, help="Cache of compiled variants; default NOJIT_CACHE_DIR.")
@shared_options
@executor_option
@output_options
def command(  # noqa: PLR0917 - click passes each by name
    out: Output,
    /,
    places: tuple[Path, ...],
    archs: tuple[str, ...],
    profile: str | None,
    kernels: tuple[str, ...],
    name: str | None,
    trials: bool,
    tuning: bool,
    retune: bool,
    untuned: bool,
    folder: Path | None,
    jobs: int | None,
    keep_going: bool,
    dry_run: bool,
    plan_: bool,
    timeout: float,
    max_variants: int,
    debug_info: str,
    build_number: int | None,
    builder: str | None,
    min_driver: int | None,
    toolchains: tuple[tuple[str, Path | None], ...],
    recheck: bool,
    cache_dir: Path | None,
    cache_url: str | None,
    readonly: bool,
    sign: Path | None,
    trust: tuple[Path, ...],
    executor: str | None,
    **assemblers: Path | None,
) -> int:
    """Compile manifests and recordings into bundles, one file per bundle and architecture: OUT/<name>-<version>-<arch>.nojit.

    Without arguments it builds every manifest in manifests/ for the architectures that it names. It compiles only variants that are not
    in the cache and leaves up-to-date bundles alone. If no file, setting or argument has changed since the last build, it does not
    even import the sources; --recheck does. It needs no GPU. Beside each bundle it writes a report and a provenance statement,
    which `nojit sign` signs.

    Recordings become one bundle with exactly the recorded specializations, for the recorded architectures or those of
    --arch. The build needs neither the program nor its packages.

    With --kernel, or some manifests of a folder, the existing bundle keeps its other kernels, from the cache unless their sources
    changed. The build then uses the existing bundle's profile and refuses another --profile. Without an existing bundle in --out, only
    the named kernels are built. A new version leaves the old file; `nojit clean` deletes it.

    Kernels with tuned tables in tuned/ beside their manifest are built with the configs of these tables. --tuning builds every config
    of each tuning space, for aligned calls only, into <name>-tuning, which `nojit tune run` measures. Configs that cannot run or spill
    too much are skipped and counted. A build warns if a tuned variant spills more than its tuning space allows.

    --debug-info=twin also builds each bundle with line info into OUT/debug: <name>-debug, which NOJIT_DEBUG_INFO loads instead, for
    profilers and debuggers.

    With --cache, builds on several machines share compiled variants, and divide the missing ones among them. A shared cache that fails
    never fails a build. --cache-trust takes only entries that a key signed, and --cache-sign writes such entries. --cache-readonly is
    for builds of changes that nobody has reviewed.

    With --executor, the workers of a Dask scheduler compile; --jobs counts the processes for variants that only this machine can
    compile. Workers need an installed nojit of the same version and the same Triton, but no checkout and no shared disk.

    --plan compiles each kernel for the requested chips and for their families, such as sm_100f, and compares the code. A family's bundle
    costs nothing where its code is that of each chip.

    With several --toolchain, or `toolchains` in a manifest, one bundle holds images of several versions of Triton. --tuning compiles every
    config with each, and tuned tables keep the faster one; kernels without a table use the first. Only Triton is taken from a
    VENV, which needs the build's version of Python.

    A driver loads only images of its own CUDA major version's toolkits. If Triton's ptxas is too new for --min-driver, nojit uses
    Triton's other one (CUDA 12), or --ptxas.
    """
    _check_options(places or (_MANIFESTS,))
    if retune and untuned:
        raise click.UsageError("expected --retune without --no-tuned: it builds the configs of the tuned tables")
    tuning |= retune
    if plan_ and (dry_run or debug_info == "twin"):
        raise click.UsageError("expected --plan without --dry-run and --debug-info: it writes no bundle")
    if tuning and profile == "core":
        option = "--retune" if retune else "--tuning"
        raise click.UsageError(f"expected --profile full with {option}, got core: a space has no profiles")
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
        retune=retune,
        tuned=not untuned,
        min_driver=min_driver,
        build_number=build_number,
        builder=builder,
        twins=debug_info == "twin",
        name=name,
        trials=trials,
        toolchains=toolchains,
        assemblers=given_assemblers(assemblers),
        dry_run=dry_run,
        plan=plan_,
        cache=given_shared(cache_url, readonly=readonly, sign=sign, trust=trust),
        executor=given_executor(executor),
    )
    started = time.monotonic()
    # a dry run prints more than a stamp stores
    asked = "" if dry_run or plan_ else asked_of(request.document())
    stamp = None if dry_run or plan_ or recheck else find_stamp(request.cache_folder, asked)
    if stamp is not None:
        _show(out, stamp, request.folder, started)
        return 0
    if out.verbosity > 0 and not recheck and (changed := changes(request.cache_folder, asked)):
        out.note(f"changed since the last build: {few(changed, _FEW)}")
    from nojit.aot.cli.building.run_build import run  # slow to import, and not needed if nothing has changed

    return run(out, request, asked)


def _check_options(places: Sequence[Path]) -> None:
    """Refuse an option that has no effect, because it affects only recordings, or only manifests, and there is none."""
    for kind, other, params in (("recording", "manifests", _OF_RECORDINGS), ("manifest", "recordings", _OF_MANIFESTS)):
        option = given_option(params)
        if option is None:
            continue
        from nojit.aot.recorded_builds.inputs import is_recording  # slow to import

        if all(is_recording(place) is (kind == "manifest") for place in places):
            instead = "set name in the manifest's [bundle]" if option == "--name" else f"leave out {option}"
            what = f"expected a {kind} with {option}, got only {other}: {few(list(map(str, places)), _FEW)}"
            raise click.UsageError(f"{what}; {instead}")


def _show(out: Output, stamp: Stamp, folder: Path, started: float) -> None:
    """Print the result of an up-to-date build."""
    for kind, words in stamp.told:
        if kind == "warn" and out.quiet:
            out.warn(words)
        else:
            out.note(words)
    show_result(out, stamp.done, folder, time.monotonic() - started, Failures(out))
