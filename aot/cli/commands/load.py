"""``nojit load``: Load a release from an OCI layout folder, into a folder or a registry."""

from __future__ import annotations

from pathlib import Path

import click
from nojit.aot.cli.console import PLACE, Output, output_options
from nojit.aot.cli.options.registries import (
    ADDRESS,
    TAG_NAME,
    insecure_option,
    pull_options,
    pull_to,
    push_to,
    release_in,
)
from nojit.aot.oci.address import Address
from nojit.aot.oci.layout_folder import LayoutFolder

__all__ = ["command"]


@click.command("load")
@click.argument("place", metavar="FOLDER", type=PLACE)
@click.argument("address", type=ADDRESS, metavar="[oci://REGISTRY/REPOSITORY:TAG]", required=False)
@click.option("--out", "folder", type=PLACE, help="Write bundles to this folder, as nojit pull does.")
@click.option("--tag", type=TAG_NAME, default="", help="Tag of the release, if the layout folder has several.")
@pull_options
@insecure_option
@output_options
def command(  # noqa: PLR0917 - click passes each by name
    out: Output,
    place: Path,
    address: Address | None,
    folder: Path | None,
    tag: str,
    archs: tuple[str, ...],
    key: Path | None,
    keys: Path | None,
    insecure: bool,
) -> None:
    """Push a release of an OCI layout folder to a registry, or write its bundles into a folder.

    With an address, the release gets to the registry as it is, with every statement: it keeps its digest. With --out, bundles are chosen
    and verified as `nojit pull` does.
    """
    if (address is None) == (folder is None):
        raise click.UsageError("expected either an address to push to or --out DIR")
    if address is not None and (archs or key or keys):
        raise click.UsageError("expected --arch, --trust and --trusted-keys only with --out: a release is pushed whole")
    layout = LayoutFolder(place)
    named, release = release_in(layout, tag)
    if address is None:
        where = f"{place}{f' {named}' if named else ''}"
        out.emit("load", pull_to(out, layout, release, where, folder, archs=archs, key=key, keys=keys))
        return
    out.emit("load", push_to(out, release, layout, address, insecure=insecure))
