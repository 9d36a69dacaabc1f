"""``nojit verify``: Check bundles down to the last byte."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import click
from nojit.aot.backends.registry import pin, vendor_named
from nojit.aot.cli.console import JOBS, PLACE, Output, counted, output_options
from nojit.aot.cli.exit_codes import exit_code
from nojit.aot.cli.options.assemblers import assembler_options, given_assemblers
from nojit.aot.cli.options.toolchains import toolchain_option
from nojit.aot.cli.options.trusted_keys import given_keys
from nojit.aot.inspect.places import Place, bundles_at
from nojit.aot.inspect.verification import verify_bundle
from nojit.aot.inspect.wheel_file import WheelFile
from nojit.aot.provenance.statement import Statement
from nojit.aot.signing.verify_signature import verify_signed
from nojit.runtime.base.wording import few, told
from nojit.runtime.bundle.file import BundleFile
from nojit.runtime.errors import NojitError
from nojit.runtime.trust.envelope import signed_path
from nojit.runtime.trust.trusted_keys import TrustedKeys

__all__ = ["command"]

_Rebuild: TypeAlias = Callable[[BundleFile, Statement | None], None]
# time limit for one compilation, in seconds: the default of `nojit build`
_TIMEOUT_S = 300.0
# a line names at most this many files
_NAMED_MAX = 8


@click.command("verify")
@click.argument("places", metavar="BUNDLE|DIR|WHEEL|NAME...", nargs=-1, required=True, type=PLACE)
@click.option("--key", type=PLACE, help="Public key in PEM; each bundle must be signed by it.")
@click.option(
    "--trusted-keys", "keys", type=PLACE, help="File of trusted keys; each bundle must be signed by one of them."
)
@click.option("--rebuild", is_flag=True, help="Rebuild each bundle from its sources and compare the bytes.")
@click.option(
    "--sources",
    type=PLACE,
    help="With --rebuild: root of the checkout; default: the current folder.",
)
@click.option("-j", "--jobs", type=JOBS, help="With --rebuild: parallel compilations; default: one per CPU.")
@toolchain_option("With --rebuild: a Triton that the build used, and its virtual environment; repeatable.")
@assembler_options("With --rebuild: the {} that the build used.")
@output_options
def command(  # noqa: PLR0917 - click passes each by name
    out: Output,
    /,
    places: tuple[Path, ...],
    key: Path | None,
    keys: Path | None,
    rebuild: bool,
    sources: Path | None,
    jobs: int | None,
    toolchains: tuple[tuple[str, Path | None], ...],
    **assemblers: Path | None,
) -> int:
    """Check bundles: hashes, format, and each image against its launch description.

    A folder or a wheel (.whl) means every bundle in it, a name every bundle that `runtime.load` finds. A wheel must also contain exactly the
    files of its RECORD, read the same by every zip reader, and no code that runs on installation; the thin wheel of a release holds no
    bundle. The output separates signed files from
    those that only RECORD lists, which anybody can write.

    Exit code 3: a bundle or wheel fails. Exit code 1: one could not be read or rebuilt. Intact bytes do not prove who built them: with --key
    or --trusted-keys the provenance statement beside each bundle must be signed, as with NOJIT_TRUST=signed. --rebuild compiles each
    bundle again from its statement (with a key, the signed one), without the cache, and compares the bytes.
    """
    for option, given in (
        ("--sources", sources),
        ("--jobs", jobs),
        ("--toolchain", toolchains or None),
        *((f"--{name}", path) for name, path in assemblers.items()),
    ):
        if given is not None and not rebuild:
            raise click.UsageError(f"expected --rebuild with {option}: add --rebuild")
    trusted = given_keys(key, keys, "--key")
    rebuilder = None
    if rebuild:
        rebuilder = partial(
            _rebuild,
            sources=sources or Path(),
            jobs=jobs,
            toolchains=toolchains,
            assemblers=given_assemblers(assemblers),
            tell=out.note,
        )
    bundles: list[dict[str, Any]] = []
    wheels: list[dict[str, Any]] = []
    codes = {0}
    for kind, result, code in (each for place in places for each in _verify_at(place, trusted, rebuilder)):
        codes.add(code)
        (wheels if kind == "wheel" else bundles).append(result)
        if not result["ok"]:
            out.warn(f"FAILED  {result['path']}  {result['error']['message']}")
        elif kind == "wheel":
            _show_wheel(out, result, signed=trusted is not None)
        else:
            by = f", signed by {result['signed_by']}, build {result['build_number']}" if trusted else ""
            by += f", until {result['expires']}" if result["expires"] else ""
            out.line(
                f"OK      {result['path']}  {result['digest'][:12]}, {counted(result['variants'], 'variant')}, "
                f"{counted(result['images'], 'image')}{by}{', rebuilt' if rebuild else ''}"
            )
    ok = all(result["ok"] for result in (*bundles, *wheels))
    out.emit("verify", {"ok": ok, "bundles": bundles, "wheels": wheels})
    return max(codes)


def _show_wheel(out: Output, result: dict[str, Any], *, signed: bool) -> None:
    """Show which files of a wheel are signed and which only RECORD lists."""
    recorded, unusual = result["recorded"], result["unusual"]
    by_key = f"{counted(len(result['signed']), 'file')} signed" if signed else "no signature checked"
    out.line(
        f"OK      {result['path']}  RECORD lists its {counted(len(result['signed']) + len(recorded), 'file')} and no other; "
        f"{by_key}; listed by RECORD only, which anybody can write: {counted(len(recorded), 'file')}"
    )
    if unusual:
        out.warn(
            f"{result['path']}: files that nojit wheel never writes and no signature covers: {few(unusual, _NAMED_MAX)}"
        )


def _rebuild(
    bundle: BundleFile,
    signed: Statement | None,
    *,
    sources: Path,
    jobs: int | None,
    toolchains: tuple[tuple[str, Path | None], ...],
    assemblers: Mapping[str, Path],
    tell: Callable[[str], None],
) -> None:
    # only --rebuild needs these modules, which import Triton and msgspec
    from nojit.aot.cli.building.run_build import load_compiler
    from nojit.aot.compile.processes.pool import WorkerPool
    from nojit.aot.signing.rebuild import rebuild

    workers = jobs or len(os.sched_getaffinity(0))
    # a bundle for an older driver was assembled by another tool, if its vendor has one
    oldest = bundle.index.min_driver if vendor_named(bundle.index.target.backend).ASSEMBLER else None
    compiler = load_compiler(toolchains, partial(pin, oldest, assemblers))
    with compiler.session(_TIMEOUT_S, tell, workers):
        rebuild(bundle, sources, compiler, lambda: WorkerPool(workers, _TIMEOUT_S), signed)


def _verify_at(
    place: Path, trusted: TrustedKeys | None, rebuild: _Rebuild | None
) -> Iterator[tuple[str, dict[str, Any], int]]:
    """Verify the bundles of a place, and the wheel that contains them; yield kind, result and exit code of each."""
    try:
        with bundles_at(place, thin=True) as found:
            signed: set[str] = set()
            for bundle in found.places:
                try:
                    yield "bundle", _verify(bundle, trusted, rebuild), 0
                    signed |= {bundle.name, signed_path(bundle.name)} if trusted else set()
                except (NojitError, OSError) as error:
                    bundle.rename_in(error)
                    yield "bundle", _failure(bundle.name, error), exit_code(error)
            if found.wheel is not None:
                yield "wheel", *_verify_wheel(found.wheel, signed)
    except (NojitError, OSError) as error:
        kind = "wheel" if place.suffix == ".whl" and place.is_file() else "bundle"
        yield kind, _failure(str(place), error), exit_code(error)


def _verify_wheel(wheel: WheelFile, signed: Collection[str]) -> tuple[dict[str, Any], int]:
    """Compare a wheel with its RECORD.

    Args:
        wheel: the wheel.
        signed: paths of files with a checked signature, each after the wheel's path.
    """
    path = str(wheel.path)
    try:
        facts = wheel.check_record()
    except (NojitError, OSError) as error:
        return _failure(path, error), exit_code(error)
    by_key = {name: f"{path}/{name}" in signed for name in facts.bundles}
    fields = {
        "signed": [name for name, is_signed in by_key.items() if is_signed],
        "recorded": [*(name for name, is_signed in by_key.items() if not is_signed), *facts.others],
        "unvouched": [facts.record],
        "unusual": list(facts.unusual),
    }
    return {"path": path, "ok": True, **fields}, 0


def _failure(name: str, error: NojitError | OSError) -> dict[str, Any]:
    if isinstance(error, NojitError):
        # the line starts with the path already
        error.where = error.where.removeprefix(name).strip()
    fields = {
        "type": type(error).__name__,
        "message": told(error),
        "rule": getattr(error, "rule", ""),
        "reason": getattr(error, "reason", ""),
    }
    return {"path": name, "ok": False, "error": fields}


def _verify(place: Place, trusted: TrustedKeys | None, rebuild: _Rebuild | None) -> dict[str, Any]:
    with place.opened() as bundle:
        vouched = None if trusted is None else verify_signed(bundle, trusted, place.asked)
        verify_bundle(bundle)
        variants = sum(entry.variants for entry in bundle.index.kernels)
        images = sum(entry.images for entry in bundle.index.kernels)
        facts = {"digest": bundle.digest, "variants": variants, "images": images}
        if rebuild is not None:
            rebuild(bundle, vouched.statement if vouched else None)
    claim = vouched.claim if vouched else None
    signature = {
        "signed_by": claim.key_name if claim else None,
        "build_number": claim.build_number if claim else None,
        "expires": claim.expires or None if claim else None,
    }
    return {"path": place.name, "ok": True, **facts, **signature, "rebuilt": rebuild is not None}
