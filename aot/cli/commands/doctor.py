"""``nojit doctor``: Show this machine and the bundles that it would use."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import click
from nojit.aot.cache.folder import default_cache_folder
from nojit.aot.cli.console import Output, counted, output_options, size
from nojit.aot.cli.exit_codes import EXIT_FAILED, EXIT_NO_MATCH
from nojit.aot.inspect import doctor
from nojit.aot.inspect.device_choice import BundleState, DeviceChoice, Raising, bare, choose, without_older
from nojit.aot.inspect.doctor import CacheState, DriverState, Failure, TuningState
from nojit.runtime.base.environment import BUNDLES, TRUST, TRUSTED_KEYS, TUNING
from nojit.runtime.base.wording import told
from nojit.runtime.discovery import discover
from nojit.runtime.discovery.versions import newer_lies_beside
from nojit.runtime.errors import TuningError
from nojit.runtime.target import parse_image_arch, spell_arch, spell_driver

__all__ = ["command"]


@click.command("doctor")
@output_options
def command(out: Output) -> int:
    """Show versions, driver, devices, and the bundles and tuned tables that each device would use.

    Exit code 1: loading operators, or a bundle by name, would fail here: the environment names a missing path or has an invalid value,
    or a bundle is damaged. A program may still load bundles by path or by another name. Exit code 4: no bundle fits a GPU. Exit code 0:
    all is well, or there is no GPU.

    With NOJIT_TRUST=signed it lists each refused bundle with the reason; bundles that load together with a refused one are not used either.
    It warns about signatures that expire within 30 days. Wheels that operators do not use never fail.
    """
    driver = doctor.probe_driver()
    found, *errors = discover.survey(os.environ)
    places, broken = ([str(error) for error in some] for some in errors)
    problems = [*places, *broken]
    accept = doctor.trust_policy()
    bundles = without_older(doctor.examine_bundle(one, accept) for one in found)
    settings = doctor.examine_settings(os.environ)
    refused = doctor.examine_loads(bundles)
    tuning = doctor.examine_tuning(os.environ.get(TUNING, ""), refused)
    blocking = _blocking(places, bundles, settings, tuning)
    failures = [*doctor.examine_names(os.environ), *doctor.examine_operators(bundles)]
    raising = _reasons(bundles, refused, failures, blocking)
    thin = doctor.examine_thin_wheels()
    choices = [
        choose(number, capability, driver.version or 0, bundles, raising, thin=thin)
        for number, capability in enumerate(driver.devices)
    ]
    # failures of a single bundle are repeated when several are loaded together
    more = [str(failure) for failure in failures if told(failure.error) not in map(told, refused.values())]
    cache = doctor.examine_cache(default_cache_folder())
    document = {
        "versions": doctor.versions(),
        "driver": asdict(driver),
        "bundle_places": discover.environment_places(os.environ),
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
        out.warn(f"{path}: its signature expires in {counted(days, 'day')}: run nojit sign again")
    if TRUSTED_KEYS in os.environ and TRUST not in os.environ:
        out.warn("environment: NOJIT_TRUSTED_KEYS without NOJIT_TRUST=signed: bundles load with any signature or none")
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
    """Return the problems that make every load by name, or every operator, fail."""
    damaged = [
        f"{bundle.path}: {bundle.problem}"
        for bundle in bundles
        if not (bundle.counts or bundle.foreign or bundle.newer)
    ]
    # tables that were read fit at least some bundles
    unread = () if tuning.tables else tuning.problems
    return [*places, *damaged, *settings, *unread]


def _reasons(
    bundles: Sequence[BundleState],
    refused: Mapping[str, Exception],
    failures: Sequence[Failure],
    blocking: Sequence[str],
) -> Raising:
    """Return the reason for each bundle and kernel that cannot be loaded."""
    if blocking:
        return Raising({bundle.path: f"nothing is loaded here: {blocking[0]}" for bundle in bundles})
    named = {path: str(failure) for failure in failures for path in failure.bundles}
    kernels = {kernel: str(failure) for failure in failures for kernel in failure.kernels}
    return Raising(named | {path: told(error) for path, error in refused.items()}, kernels)


def _show_machine(out: Output, document: dict[str, Any], driver: DriverState, cache: CacheState) -> None:
    pairs = [(name, found or "not installed") for name, found in document["versions"].items()]
    first = driver.devices[0] if driver.devices else 0
    number = f"for {spell_driver(first, driver.version)}" if driver.version is not None else ""
    pairs.append(("driver", "; ".join(filter(None, (number, driver.problem)))))
    pairs.append(("devices", ", ".join(map(spell_arch, driver.devices)) or "none"))
    state = f"{counted(cache.entries, 'variant')}, {size(cache.size_bytes)}" if cache.exists else "not there yet"
    pairs.append(("cache", f"{cache.path}: {cache.problem or state}"))
    # an exported variable is easily forgotten, and its bundles come first
    places = document["bundle_places"]
    if places:
        there = {place: os.path.exists(place) for place in places}  # noqa: PTH110 - a path raises without permission to look
        pairs.append((BUNDLES, ", ".join(f"{place}{'' if there[place] else ' (missing)'}" for place in places)))
    out.facts(pairs)
    out.line()


def _show_bundles(out: Output, bundles: list[BundleState], problems: list[str]) -> None:
    for problem in problems:
        out.warn(f"bundles: {problem}")
    if not bundles:
        out.line("no bundle found: run nojit build, install a wheel of bundles, or set NOJIT_BUNDLES")
        return
    headers = ("bundle", "version", "images", ">variants", ">CUDA", ">driver", "from", "path")
    rows = [
        (
            bundle.name or "-",
            bundle.version or "-",
            bundle.image_arch or "-",
            f"{bundle.variants:,}" if bundle.name else "-",
            _needed(bundle) if bundle.name else "-",
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
        "A call that just misses a set of hints runs a slower variant. To list such calls, log at INFO (logger nojit) "
        "or print(*nojit.runtime.counters().hint_misses, sep='\\n')."
    )
    out.line()


def _needed(bundle: BundleState) -> str:
    """Return the oldest driver of a bundle for the column CUDA, which another vendor's bundles name."""
    arch = parse_image_arch(bundle.image_arch).number
    return f"{spell_driver(arch, bundle.min_driver).removeprefix('CUDA ')}+"


def _show_tuning(out: Output, tuning: TuningState) -> None:
    """Show the tuned tables of the environment, if any."""
    for problem in tuning.problems:
        out.warn(f"{TUNING}: {problem}")
    if tuning.tables:
        out.line(f"{TUNING} tunes {'; '.join(tuning.tables)}")
        out.line()


def _show_device(out: Output, choice: DeviceChoice, *, loads: bool) -> None:
    name = f"device {choice.device}, {spell_arch(choice.capability)}"
    if choice.used:
        out.line(f"{name} would use {', '.join(choice.used)}", style="green")
    else:
        out.warn(f"{name}: no bundle {'fits' if loads else 'loads'}")
    for bundle, remedy in choice.missing:
        out.warn(f"{name} cannot use {bundle}, which {remedy}")
    if out.verbosity > 0 or not choice.used:
        for path, reason in choice.rejected:
            out.line(f"  not {path}: {reason}")
