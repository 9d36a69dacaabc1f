"""``nojit pull``: Pull bundles from an OCI registry."""

from __future__ import annotations

from pathlib import Path

import click
from nojit.aot.cli.console import PLACE, Output, output_options
from nojit.aot.cli.options.registries import ADDRESS, insecure_option, open_repository, pull_options, pull_to
from nojit.aot.oci.address import Address
from nojit.aot.oci.release import read_release

__all__ = ["command"]


@click.command("pull")
@click.argument("address", type=ADDRESS, metavar="oci://REGISTRY/REPOSITORY:TAG")
@click.option("--out", "folder", type=PLACE, help="Output folder; default artifacts.")
@pull_options
@insecure_option
@output_options
def command(  # noqa: PLR0917 - click passes each by name
    out: Output,
    address: Address,
    folder: Path | None,
    archs: tuple[str, ...],
    key: Path | None,
    keys: Path | None,
    insecure: bool,
) -> None:
    """Write the bundles of a release that this machine runs into a folder, with their statements.

    Address a release by tag, or by digest (oci://REGISTRY/REPOSITORY@sha256:...), which always means the same bundles. Each bundle is
    verified as `nojit verify` does before it is in the folder; without --trust or --trusted-keys, that does not tell who built it.
    A second run goes on where an interrupted one stopped; bundles that the folder has already are not read again.

    Exit code 3: a bundle does not verify. Exit code 4: the release has no bundle for this machine or --arch.
    """
    repository = open_repository(address, insecure=insecure)
    release = read_release(repository, address.reference, str(address))
    out.emit("pull", pull_to(out, repository, release, str(address), folder, archs=archs, key=key, keys=keys))
