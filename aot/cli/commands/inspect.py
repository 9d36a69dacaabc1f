"""``nojit inspect``: Show the contents of a bundle."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click
from nojit.aot.cli.console import PLACE, Output, counted, number_range, output_options, size
from nojit.aot.compile.toolchain.digests import toolchain_words
from nojit.aot.inspect.contents import (
    BundleFacts,
    KernelFacts,
    RecordedFacts,
    RecordingFacts,
    VariantFacts,
    bundle_facts,
    config_words,
    definition,
    kernel_facts,
    recording_facts,
    variant_facts,
)
from nojit.aot.inspect.places import Place, bundles_at
from nojit.aot.provenance.statement import ProvenanceFacts, read_signed_statement, read_statement, statement_path
from nojit.runtime.errors import BundleError, KernelNotFoundError, PackageError
from nojit.runtime.table.parts import Missing, Param
from nojit.runtime.table.table import KernelTable
from nojit.runtime.table.tuning import TuningTable
from nojit.runtime.target import parse_image_arch, spell_driver
from nojit.runtime.types.names import NONE
from nojit.runtime.values import spell

__all__ = ["command"]


@click.command("inspect")
@click.argument("path", metavar="BUNDLE|DIR|WHEEL|NAME", type=PLACE)
@click.option("--kernel", metavar="K", help="Show this kernel with each of its variants.")
@output_options
def command(out: Output, path: Path, kernel: str | None) -> None:
    """Show the contents of bundles: kernels, variants, registers, spills, shared memory, sizes, toolchain, origin.

    A folder, a wheel (.whl) or a name that `runtime.load` finds shows every bundle; with --kernel, every bundle that has the kernel. The
    origin comes from the statement beside the bundle. This command verifies only the parts that it reads, and no signature; use
    `nojit verify` to check everything.
    """
    documents: list[dict[str, Any]] = []
    lacking: list[KernelNotFoundError] = []
    with bundles_at(path) as found:
        for place in found.places:
            try:
                documents.append(_inspect(out, place, kernel))
                if len(found.places) > 1:
                    out.line()
            except (KernelNotFoundError, BundleError) as error:
                place.rename_in(error)
                if isinstance(error, BundleError):
                    raise
                lacking.append(error)
    if not documents:
        raise lacking[0]
    out.emit("inspect", documents[0] if len(found.places) == 1 else {"bundles": documents})


def _inspect(out: Output, place: Place, kernel: str | None) -> dict[str, Any]:
    """Show a bundle or one of its kernels; return the JSON document."""
    with place.opened() as bundle:
        facts, recording = replace(bundle_facts(bundle), path=place.name), recording_facts(bundle)
        if kernel is None:
            kernels = [kernel_facts(bundle, name) for name in bundle.kernels]
            origin = _provenance(place.path, bundle.digest)
            _show_bundle(out, facts, origin, recording)
            _show_kernels(out, kernels)
            documents = {"bundle": asdict(facts), "kernels": [asdict(one) for one in kernels]}
            return {
                **documents,
                "provenance": None if origin is None else asdict(origin),
                "recording": None if recording is None else asdict(recording),
            }
        table, summary, variants = bundle.table(kernel), kernel_facts(bundle, kernel), variant_facts(bundle, kernel)
    recorded = next((each for each in recording.kernels if each.kernel == kernel), None) if recording else None
    body = {**asdict(summary), **definition(table)}
    _show_definition(out, table, facts, recorded)
    _show_variants(out, variants)
    return {
        "bundle": asdict(facts),
        "kernel": body,
        "variants": [asdict(one) for one in variants],
        "recorded": None if recorded is None else asdict(recorded),
    }


def _provenance(path: Path, digest: str) -> ProvenanceFacts | None:
    """Return the facts of a bundle's statement: the signed one if it is of this bundle, else the unsigned one, else None."""
    place, problem = statement_path(path), ""
    try:
        signed = read_signed_statement(path, digest)
        if signed is not None:
            return signed.facts(digest, signed=True)
    except PackageError as error:
        problem = str(error)
    return read_statement(place).facts(digest, signed=False, problem=problem) if place.exists() else None


def _origin(facts: ProvenanceFacts) -> str:
    if not facts.describes:
        return "unknown: the statement next to it belongs to another bundle"
    changes = " with uncommitted changes" if facts.dirty else ""
    commit = f"commit {facts.commit[:12]}{changes}" if facts.commit else "an unknown commit"
    of = f" of {facts.uri}" if facts.uri else ""
    until = f" until {facts.expires}" if facts.expires else ""
    state = f", signed{until} (signature not checked)" if facts.signed else ""
    if facts.signed_problem:
        state = ", invalid signature"
    return f"{commit}{of}, build {facts.build_number} by {facts.builder}, {facts.finished}{state}"


def _recording(facts: RecordingFacts) -> str:
    versions = [f"Triton {facts.triton or 'of unknown version'}", *([f"torch {facts.torch}"] if facts.torch else [])]
    return f"a recording of {counted(len(facts.kernels), 'kernel')} with {' and '.join(versions)}"


def _show_bundle(
    out: Output, facts: BundleFacts, origin: ProvenanceFacts | None, recording: RecordingFacts | None
) -> None:
    out.line(f"{facts.name} {facts.version} for {facts.arch}", style="cyan")
    driver = spell_driver(parse_image_arch(facts.image_arch).number, facts.min_driver)
    ratio = f"{facts.image_bytes / facts.payload_bytes:.1f} times smaller" if facts.payload_bytes else "empty"
    pairs = [
        ("file", f"{facts.path}, {size(facts.file_bytes)}"),
        ("digest", facts.digest),
        ("runs on", f"images for {facts.image_arch}; driver for {driver} or newer"),
        *([("untried", facts.untried)] if facts.untried else []),
        ("toolchain", toolchain_words(tuple(facts.toolchain.items()))),
        *([("built from", _origin(origin))] if origin else []),
        *([("recorded", _recording(recording))] if recording else []),
        *(
            ("package", " ".join(filter(None, (name, version, f"({licence})" if licence else ""))))
            for name, version, licence in (recording.distributions if recording else ())
        ),
        *(
            [("imports", ", ".join(origin.distributions))]
            if origin and origin.describes and origin.distributions
            else []
        ),
        ("variants", f"{facts.variants:,} with {counted(facts.images, 'distinct image')}"),
        (
            "images",
            f"{size(facts.image_bytes)} in {counted(facts.groups, 'group')} of {size(facts.payload_bytes)}: {ratio}",
        ),
        *(("attachment", f"{one.name}, {size(one.content_bytes)}") for one in facts.attachments),
    ]
    out.facts(pairs if out.verbosity < 1 else [*pairs, ("inputs", facts.inputs)])
    if origin and origin.signed_problem:
        out.warn(f"signed statement: {origin.signed_problem}")
    out.line()


def _show_kernels(out: Output, kernels: Sequence[KernelFacts]) -> None:
    names = dict.fromkeys(name for one in kernels for name in one.toolchains)
    counts = tuple(f">by {name}" for name in names)
    headers = ("kernel", ">variants", *counts, ">configs", ">images", ">raw", ">registers", ">spilling", ">shared B")
    rows = [
        (
            one.name,
            f"{one.variants:,}",
            *(f"{one.toolchains[name]:,}" if name in one.toolchains else "-" for name in names),
            f"{one.configs:,}",
            f"{one.images:,}",
            size(one.image_bytes),
            number_range(one.registers_min, one.registers_max),
            f"{one.spilling:,}" if one.spilling else "-",
            f"{one.shared_bytes_max:,}",
        )
        for one in kernels
    ]
    out.table(headers, rows)


def _show_definition(out: Output, table: KernelTable, facts: BundleFacts, recorded: RecordedFacts | None) -> None:
    out.line(f"{table.kernel} of {facts.name} {facts.version} for {facts.arch}", style="cyan")
    tuning, types = table.tuning, table.param_types()
    pairs = [
        *([("recorded", f"{recorded.module}:{recorded.qualname}")] if recorded else []),
        ("params", ", ".join(_param(param, types.get(param.name, ())) for param in table.params)),
        ("grid", ", ".join(table.grid) or "given by every call"),
        *(
            ("type" if axis.is_type else "axis", f"{axis.name}: {', '.join(spell(value) for value in axis.values)}")
            for axis in table.axes
        ),
        *(("derived", f"{derived.name} = {derived.expression}") for derived in table.derived),
        *(("config", config_words(config)) for config in table.configs),
    ]
    if tuning is not None:
        pairs.append(("tuning", f"by {', '.join(tuning.key)}, {tuning.bucket} buckets"))
        pairs += [("tuned for", _tuned_for(table)) for table in tuning.tables]
    if table.batch:
        pairs.append(("batch", ", ".join(table.batch)))
    out.facts(pairs)
    out.line()


def _param(param: Param, types: Sequence[str]) -> str:
    """Return a param as text: its name, types and default."""
    kinds = "constexpr" if param.constexpr else "|".join(sorted(types, key=lambda kind: (kind == NONE, kind)))
    default = "" if isinstance(param.default, Missing) else f"={spell(param.default)}"
    return f"{param.name}{': ' if kinds else ''}{kinds}{default}"


def _tuned_for(table: TuningTable) -> str:
    problems = counted(sum(len(block.rows) for block in table.blocks), "problem")
    cases = counted(sum(len(block.cases) for block in table.blocks), "case")
    costly = sum(len(block.cases) for block in table.blocks if block.costs)
    costs = f"; elsewhere costs decide for {costly} of them" if costly else ""
    return f"{table.device.name}: {problems} of {cases}{costs}"


def _show_variants(out: Output, variants: Iterable[VariantFacts]) -> None:
    headers = ("id", ">regs", ">spill B", ">shared B", ">warps", ">size", "image", "variant")
    rows = [
        (
            # the title has the kernel's name
            one.id.rpartition("-")[2],
            str(one.registers),
            f"{one.spill_bytes:,}" if one.spill_bytes else "-",
            f"{one.shared_bytes:,}",
            str(one.num_warps),
            size(one.image_bytes),
            one.image_sha256[:8],
            one.label,
        )
        for one in variants
    ]
    out.table(headers, rows)
