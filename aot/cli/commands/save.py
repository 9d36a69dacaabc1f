"""``nojit save``: Save bundles, or a release of a registry, as an OCI layout folder."""

from __future__ import annotations

from pathlib import Path

import click
from nojit.aot.cli.console import Output, output_options
from nojit.aot.cli.options.registries import TAG_NAME, copy_to, insecure_option, open_repository
from nojit.aot.cli.shipping import read_newest, tell_changes, tell_unsigned
from nojit.aot.oci.address import SCHEME, TAG, Address, parse_address
from nojit.aot.oci.endpoints import ReleaseSource
from nojit.aot.oci.layout_folder import LayoutFolder
from nojit.aot.oci.release import LocalRelease, Release, open_release, read_release, ship

__all__ = ["command"]


@click.command("save")
@click.argument("words", metavar="oci://...|BUNDLE|DIR... FOLDER", nargs=-1, required=True)
@click.option(
    "--tag", type=TAG_NAME, default="", help="Tag in the folder; default: that of the address, or the version."
)
@insecure_option
@output_options
def command(out: Output, words: tuple[str, ...], tag: str, insecure: bool) -> None:
    """Write a release into an OCI layout folder, to carry it to where no registry can be reached.

    The release is one of a registry, with every bundle and statement, or is made of bundles, as `nojit push` does. FOLDER is new, empty,
    or a layout folder, to which the release is added; `nojit load` reads it, as do skopeo and oras. A second run goes on where an
    interrupted one stopped.
    """
    if "" in words:
        raise click.UsageError("expected an address, bundles or a folder, got ''")
    *sources, last = words
    if not sources or last.startswith(SCHEME):
        raise click.UsageError("expected an address or bundles, and then the folder to write to")
    layout = LayoutFolder(Path(last))
    addresses = [word for word in sources if word.startswith(SCHEME)]
    if addresses and len(sources) > 1:
        raise click.UsageError("expected either one address or bundles before the folder")
    bundles = []
    if addresses:
        address = _address(addresses[0])
        source: ReleaseSource = open_repository(address, insecure=insecure)
        release, tag = read_release(source, address.reference, str(address)), tag or address.tag
    else:
        bundles = read_newest(out, [Path(word) for word in sources])
        local = LocalRelease([ship(bundle) for bundle in bundles])
        release, source = open_release(local.document, local.url), local
        tag = tag or _version(release)
    facts = copy_to(out, release, source, layout, tag)
    out.emit("save", {"folder": last, "tag": tag, **facts})
    out.line(f"{last}{f', tag {tag}' if tag else ''}, digest {release.digest}")
    tell_unsigned(out, bundles)
    tell_changes(out, bundles)


def _address(text: str) -> Address:
    try:
        return parse_address(text)
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def _version(release: Release) -> str:
    """Return the version of all bundles as a tag; empty if they have several, or if it is no tag."""
    versions = {offer.version for offer in release.offers}
    version = versions.pop() if len(versions) == 1 else ""
    return version if TAG.fullmatch(version) else ""
