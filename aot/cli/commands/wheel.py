"""``nojit wheel``: Pack bundles into wheels that pip and uv install."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any, cast

import click
from nojit.aot.base.files import write_file
from nojit.aot.cli.console import PLACE, Number, Output, counted, output_options, size
from nojit.aot.cli.shipping import read_newest, tell_changes, tell_unsigned
from nojit.aot.signing.shipped_bundles import VerifiedBundle
from nojit.aot.wheel.make import Layout, MadeFile, check_apart, check_folder, make_files, release_of
from nojit.aot.wheel.metadata import Facts
from nojit.aot.wheel.wheel_variants import misled
from nojit.runtime.base.file_kinds import check_regular
from nojit.runtime.base.wording import worded
from nojit.runtime.discovery.installed import normalized
from nojit.runtime.errors import PackageError

__all__ = ["command"]

_DIST = Path("dist")
# default size limit of the Python Package Index
_MAX_MB = 100.0
# metadata allows a URL's label of at most this many characters
_LABEL_MAX = 32


@click.command("wheel")
@click.argument("places", metavar="[BUNDLE|DIR]...", nargs=-1, type=PLACE)
@click.option("--out", "folder", type=PLACE, default=_DIST, help="Output folder; default dist.")
@click.option(
    "--layout",
    type=click.Choice(["providers", "variants"]),
    default="providers",
    help="providers: one distribution per architecture; variants: wheel variants of one; default providers.",
)
@click.option("--name", default="", metavar="NAME", help="Name of the wheels; default: the name of the bundles.")
@click.option("--version", default="", metavar="V", help="Version of the wheels; default: the version of the bundles.")
@click.option(
    "--max-size",
    type=Number(0, 1e6, min_open=True),
    default=_MAX_MB,
    metavar="MB",
    help="Size limit of a wheel; default 100.",
)
@click.option("--license", "license_", default="", metavar="SPDX", help="Licence of the kernels, such as Apache-2.0.")
@click.option(
    "--license-file", "license_files", multiple=True, type=PLACE, help="File with the licence text; repeatable."
)
@click.option("--url", "urls", multiple=True, metavar="LABEL=URL", help="Project link for the metadata; repeatable.")
@click.option(
    "--runtime", default="", metavar="REQ", help="Requirement on the runtime; default: this version of nojit or newer."
)
@click.option("--require", "requires", multiple=True, metavar="REQ", help="Additional requirement; repeatable.")
@output_options
def command(  # noqa: PLR0917 - click passes each by name
    out: Output,
    places: tuple[Path, ...],
    folder: Path,
    layout: str,
    name: str,
    version: str,
    max_size: float,
    license_: str,
    license_files: tuple[Path, ...],
    urls: tuple[str, ...],
    runtime: str,
    requires: tuple[str, ...],
) -> None:
    """Pack bundles into wheels that pip and uv install and nojit.runtime finds.

    Without arguments it packs every bundle in artifacts/; of several versions in a folder, the newest. --layout providers makes one
    distribution per architecture, <name>-sm90, and a thin wheel <name> with the extras sm90 and so on, and all. --layout variants makes
    wheel variants of <name>, from which uv selects one for the GPU. It also writes a plain wheel with every bundle, and the file that an
    index needs.

    Bundles with different names make different distributions, unless --name combines them. Signed statements are packed with their
    bundles; `nojit verify --key` checks them in a wheel. The same bundles and statements give the same bytes.
    """
    bundles = read_newest(out, places)
    facts = Facts(
        runtime=runtime or f"nojit>={version_of('nojit')}",
        requires=requires,
        license=license_,
        license_files=_read_licenses(license_files),
        urls=_urls(urls),
    )
    generator = f"nojit {version_of('nojit')}"
    files = [
        file
        for together in _by_distribution(bundles, name)
        for file in make_files(
            release_of(together, name, version), cast("Layout", layout), facts, generator, round(max_size * 1e6)
        )
    ]
    if layout == "variants":
        for arch, devices in misled(bundles).items():
            out.warn(
                f"GPUs of {' and '.join(devices)} would get the variant for {arch}, which does not run there: "
                "build bundles for them too"
            )
    check_apart(files)
    check_folder(folder, files)
    for file in files:
        write_file(folder / file.name, file.data)
    out.emit("wheel", {"layout": layout, "files": [_document(file, folder) for file in files]})
    _show(out, files, folder)
    tell_unsigned(out, bundles)
    if not license_:
        out.note("no licence: add --license SPDX to say how others may use the kernels")
    tell_changes(out, bundles)


def _by_distribution(bundles: Sequence[VerifiedBundle], name: str) -> list[list[VerifiedBundle]]:
    """Group the bundles by distribution: by name, or all together if `name` is given."""
    if name:
        return [list(bundles)]
    groups: dict[str, list[VerifiedBundle]] = {}
    for bundle in bundles:
        groups.setdefault(normalized(bundle.index.name), []).append(bundle)
    return list(groups.values())


def _read_licenses(paths: Sequence[Path]) -> dict[str, bytes]:
    texts: dict[str, bytes] = {}
    for path in paths:
        if path.name in texts:
            raise PackageError("expected licence files of different names", got=f"{path.name} twice")
        try:
            check_regular(path)
            texts[path.name] = path.read_bytes()
        except OSError as error:
            raise PackageError("expected a licence file", got=worded(error), where=str(path)) from None
    return texts


def _urls(texts: Sequence[str]) -> tuple[str, ...]:
    """Return the URLs in the form of wheel metadata: ``label, url``."""
    urls: dict[str, str] = {}
    for text in texts:
        label, _, url = text.partition("=")
        if not (label and re.fullmatch(r"https?://\S+", url)):
            raise click.UsageError(f"expected --url LABEL=https://..., got {text!r}")
        # metadata readers end the label at the first comma and strip spaces
        if "," in label or label != label.strip() or len(label) > _LABEL_MAX:
            what = f"--url: expected a label of at most {_LABEL_MAX} characters, without commas or surrounding spaces"
            raise click.UsageError(f"{what}, got {label!r}")
        if label in urls:
            raise click.UsageError(f"--url: expected each label once, got {label!r} twice")
        urls[label] = url
    return tuple(f"{label}, {url}" for label, url in urls.items())


def _document(file: MadeFile, folder: Path) -> dict[str, Any]:
    return {
        "path": str(folder / file.name),
        "kind": file.kind,
        "archs": list(file.archs),
        "size_bytes": len(file.data),
        "sha256": file.sha256,
        "bundles": [bundle.digest for bundle in file.bundles],
    }


def _show(out: Output, files: Sequence[MadeFile], folder: Path) -> None:
    rows = [(file.kind, ", ".join(file.archs), size(len(file.data)), file.sha256[:12], file.name) for file in files]
    out.table(("kind", "archs", ">size", "sha256", "file"), rows)
    total = sum(len(file.data) for file in files)
    out.line(f"{counted(len(files), 'file')}, {size(total)}, in {folder}")
