"""``nojit push``: Push bundles to an OCI registry."""

from __future__ import annotations

from pathlib import Path

import click
from nojit.aot.cli.console import PLACE, Output, output_options
from nojit.aot.cli.options.registries import ADDRESS, insecure_option, push_to
from nojit.aot.cli.shipping import read_newest, tell_changes, tell_unsigned
from nojit.aot.oci.address import Address
from nojit.aot.oci.release import LocalRelease, open_release, ship

__all__ = ["command"]


@click.command("push")
@click.argument("address", type=ADDRESS, metavar="oci://REGISTRY/REPOSITORY:TAG")
@click.argument("places", metavar="[BUNDLE|DIR]...", nargs=-1, type=PLACE)
@insecure_option
@output_options
def command(out: Output, address: Address, places: tuple[Path, ...], insecure: bool) -> None:
    """Verify bundles and push them to a registry as one release, with their statements.

    Without bundles it pushes every bundle in artifacts/; of several versions in a folder, the newest. It does not send
    contents that the registry has, so a second run goes on where an interrupted one stopped. The tag comes last. The same bundles have the
    same digest on every machine; statements refer to bundles, so you can sign a release later and push it again.

    Credentials are those of docker login, podman login, skopeo login or oras login.
    """
    bundles = read_newest(out, places)
    local = LocalRelease([ship(bundle) for bundle in bundles])
    out.emit("push", push_to(out, open_release(local.document, local.url), local, address, insecure=insecure))
    tell_unsigned(out, bundles)
    tell_changes(out, bundles)
