"""``nojit doctor``: what this machine has, and what it would use."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import click
from nojit.aot import doctor
from nojit.aot.cache import default_cache_folder
from nojit.aot.choice import BundleState, DeviceChoice, Raising, bare, choose, without_older
from nojit.aot.cli.console import Output, counted, driver_version, output_options, size
from nojit.aot.cli.group import EXIT_FAILED, EXIT_NO_MATCH
from nojit.aot.doctor import CacheState, DriverState, Failure, TuningState
from nojit.runtime import discover
from nojit.runtime.errors import TuningError, told
from nojit.runtime.tuning_source import VARIABLE
from nojit.runtime.versions import newer_lies_beside

__all__ = ["command"]


@click.command("doctor")
@output_options
def command(out: Output) -> int:
    """Show versions, driver, devices, the bundles that are found, which of them each device would use, and with what tuning.

    Exits 1 if something here makes operators raise when they load their kernels, or a load by the name of a bundle: a place
    that the environment names and that is not there, a damaged bundle, a variable that says what it cannot. (A bundle that a
    program loads by its path or by another name may load all the same.) Else 4 if there is a GPU that no bundle fits, and 0
    without a GPU: there is nothing to match. With NOJIT_TRUST=signed, bundles that are not signed as that wants are listed
    with the reason, and used for nothing; nor are those that they are loaded together with, by name or by operators; signatures that
    expire within 30 days are warned of. Wheels that operators do not ask for are nothing that they raise for.
    """
    driver = doctor.probe_driver()
    found, *errors = discover.survey(os.environ)
    places, broken = ([str(error) for error in some] for some in errors)
    problems = [*places, *broken]
    accept = doctor.trust_policy()
    bundles = without_older(doctor.examine_bundle(one, accept) for one in found)
    settings = doctor.examine_settings(os.environ)
    refused = doctor.examine_loads(bundles)
    tuning = doctor.examine_tuning(os.environ.get(VARIABLE, ""), refused)
    blocking = _blocking(places, bundles, settings, tuning)
    failures = [*doctor.examine_names(os.environ), *doctor.examine_operators(bundles)]
    raising = _raising(bundles, refused, failures, blocking)
    thin = doctor.examine_thin_wheels()
    choices = [
        choose(number, capability, driver.version or 0, bundles, raising, thin=thin)
        for number, capability in enumerate(driver.devices)
    ]
    # what a bundle raises by its path it raises in any company
    more = [str(failure) for failure in failures if told(failure.error) not in map(told, refused.values())]
    cache = doctor.examine_cache(default_cache_folder())
    document = {
        "versions": doctor.versions(),
        "driver": asdict(driver),
        "discovery_problem": problems[0] if problems else "",
        "discovery_problems": problems,
        "problems": blocking or [*(f"{path}: {told(error)}" for path, error in refused.items()), *more],
        "bundles": [asdict(bundle) for bundle in bundles],
        "devices": [asdict(choice) for choice in choices],
        "thin_wheels": thin,
        "tuning": asdict(tuning),
        "cache": asdict(cache),
    }
    out.emit("doctor", document)
    _show_machine(out, document, driver, cache)
    _show_bundles(out, bundles, problems)
    for path, days in doctor.nearly_expired(bundles):
        out.warn(f"{path}: its signature expires in {counted(days, 'day')}: sign it again (nojit sign)")
    if "NOJIT_TRUSTED_KEYS" in os.environ and "NOJIT_TRUST" not in os.environ:
        out.warn("environment: NOJIT_TRUSTED_KEYS without NOJIT_TRUST=signed: bundles are loaded, whoever signed them")
    for problem in settings:
        out.warn(f"environment: {problem}")
    _show_tuning(out, tuning)
    for path, error in refused.items():
        if not blocking and not isinstance(error, TuningError):
            out.warn(f"{path}: {told(error)}")
    for failure in () if blocking else more:
        out.warn(failure)
    for name in () if choices else bare(thin, bundles):
        out.warn(f"{name} is installed without a bundle: pip install '{name}[all]'")
    for choice in choices:
        _show_device(out, choice, loads=not document["problems"])
    if document["problems"]:
        return EXIT_FAILED
    return EXIT_NO_MATCH if any(not choice.used for choice in choices) else 0


def _blocking(
    places: Sequence[str], bundles: Sequence[BundleState], settings: Sequence[str], tuning: TuningState
) -> list[str]:
    """Say what makes every load by name raise, or every operator."""
    damaged = [
        f"{bundle.path}: {bundle.problem}"
        for bundle in bundles
        if not (bundle.counts or bundle.foreign or bundle.newer)
    ]
    # tables that were read fit some bundles if not all
    unread = () if tuning.tables else tuning.problems
    return [*places, *damaged, *settings, *unread]


def _raising(
    bundles: Sequence[BundleState],
    refused: Mapping[str, Exception],
    failures: Sequence[Failure],
    blocking: Sequence[str],
) -> Raising:
    """Say what cannot be loaded, and why."""
    if blocking:
        return Raising({bundle.path: f"nothing is loaded here: {blocking[0]}" for bundle in bundles})
    named = {path: str(failure) for failure in failures for path in failure.bundles}
    kernels = {kernel: str(failure) for failure in failures for kernel in failure.kernels}
    return Raising(named | {path: told(error) for path, error in refused.items()}, kernels)


def _show_machine(out: Output, document: dict[str, Any], driver: DriverState, cache: CacheState) -> None:
    pairs = [(name, found or "not installed") for name, found in document["versions"].items()]
    number = f"for CUDA {driver_version(driver.version)}" if driver.version is not None else ""
    pairs.append(("driver", "; ".join(filter(None, (number, driver.problem)))))
    pairs.append(("devices", ", ".join(f"sm_{capability}" for capability in driver.devices) or "none"))
    state = f"{counted(cache.entries, 'variant')}, {size(cache.size_bytes)}" if cache.exists else "not there yet"
    pairs.append(("cache", f"{cache.path}: {cache.problem or state}"))
    out.facts(pairs)
    out.line()


def _show_bundles(out: Output, bundles: list[BundleState], problems: list[str]) -> None:
    for problem in problems:
        out.warn(f"bundles: {problem}")
    if not bundles:
        out.line("no bundle found: build some, install a bundle wheel, or set NOJIT_BUNDLES")
        return
    headers = ("bundle", "version", "images", ">variants", ">CUDA", ">driver", "from", "path")
    rows = [
        (
            bundle.name or "-",
            bundle.version or "-",
            bundle.image_arch or "-",
            f"{bundle.variants:,}" if bundle.name else "-",
            f"{driver_version(bundle.min_driver)}+" if bundle.name else "-",
            f"{bundle.driver}+" if bundle.driver else "-",
            bundle.origin,
            bundle.path,
        )
        for bundle in bundles
    ]
    out.table(headers, rows)
    for bundle in bundles:
        if bundle.problem:
            out.warn(f"{bundle.path}: {bundle.problem}")
        elif bundle.newer:
            out.warn(f"{bundle.path}: {newer_lies_beside(bundle.newer)}")
    out.line()
    out.line(
        "A call that just misses a set of hints runs a slower variant: a program shows which with logging at INFO (logger nojit), "
        "or print(*nojit.runtime.counters().hint_misses, sep='\\n')."
    )
    out.line()


def _show_tuning(out: Output, tuning: TuningState) -> None:
    """Say what the environment tunes with; nothing if it does not."""
    for problem in tuning.problems:
        out.warn(f"{VARIABLE}: {problem}")
    if tuning.tables:
        out.line(f"{VARIABLE} tunes {'; '.join(tuning.tables)}")
        out.line()


def _show_device(out: Output, choice: DeviceChoice, *, loads: bool) -> None:
    name = f"device {choice.device}, sm_{choice.capability}"
    if choice.used:
        out.line(f"{name} would use {', '.join(choice.used)}", style="green")
    else:
        out.warn(f"{name}: no bundle {'fits' if loads else 'can be loaded'}")
    for bundle, remedy in choice.missing:
        out.warn(f"{name} has nothing of {bundle}, which {remedy}")
    if out.verbosity > 0 or not choice.used:
        for path, reason in choice.rejected:
            out.line(f"  not {path}: {reason}")
