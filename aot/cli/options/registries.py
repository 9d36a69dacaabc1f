"""Options of commands that reach registries or layout folders, and what they have in common."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from click.shell_completion import CompletionItem
from nojit.aot.cli.console import PLACE, Arch, Output, counted, size
from nojit.aot.cli.options.trusted_keys import given_keys
from nojit.aot.inspect.doctor import probe_driver
from nojit.aot.oci.address import TAG, Address, parse_address
from nojit.aot.oci.bundle_choice import ALL, NATIVE, for_arch, for_devices, too_new
from nojit.aot.oci.client import Client
from nojit.aot.oci.copying import copy_release
from nojit.aot.oci.credentials import find_credentials
from nojit.aot.oci.endpoints import ReleaseSource, ReleaseTarget
from nojit.aot.oci.error_reasons import refusal
from nojit.aot.oci.layout_folder import LayoutFolder
from nojit.aot.oci.pull import Received, receive
from nojit.aot.oci.release import Offer, Release, open_release
from nojit.aot.oci.repository import Repository
from nojit.aot.oci.retries import Limits

__all__ = [
    "ADDRESS",
    "TAG_NAME",
    "copy_to",
    "insecure_option",
    "open_repository",
    "pull_options",
    "pull_to",
    "push_to",
    "release_in",
]

F = TypeVar("F", bound=Callable[..., Any])

# one for each registry of a command; tests replace it
LIMITS: Limits = Limits()
_FOLDER: Final = Path("artifacts")


class _AddressType(click.ParamType):  # type: ignore[type-arg] # generic since click 8.2, and not before
    """Type of an address of a release in a registry."""

    name = "address"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Address:
        """Return the address that a text spells."""
        if isinstance(value, Address):
            return value
        try:
            return parse_address(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class _TagType(click.ParamType):  # type: ignore[type-arg] # as above
    """Type of a tag."""

    name = "tag"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the tag if it is one."""
        # the empty default
        if value and not TAG.fullmatch(str(value)):
            self.fail(f"expected a tag of letters, digits, and _ . - after the first, got {value!r}", param, ctx)
        return str(value)


class _Wanted(Arch):
    """Type of options for an architecture, all of them, or those of this machine."""

    def __init__(self) -> None:
        super().__init__(families=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the value if its spelling is valid."""
        return str(value) if value in {ALL, NATIVE} else super().convert(value, param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the known values that start with `incomplete`."""
        more = [CompletionItem(word) for word in (NATIVE, ALL) if word.startswith(incomplete)]
        return more + super().shell_complete(ctx, param, incomplete)


ADDRESS: Final = _AddressType()
"""Type of an address: ``oci://registry/repository:tag``."""
TAG_NAME: Final = _TagType()
"""Type of a tag."""


def insecure_option(command: F) -> F:
    """Add ``--insecure`` to a command."""
    return click.option(
        "--insecure",
        is_flag=True,
        help="Use HTTP without TLS. A registry on localhost needs no permission.",
    )(command)


def pull_options(command: F) -> F:
    """Add the options that choose and verify the bundles to write into a folder; `pull_to` takes them."""
    for option in (
        click.option(
            "--trusted-keys",
            "keys",
            type=PLACE,
            help="File of trusted keys; each bundle must be signed by one of them.",
        ),
        click.option(
            "--trust", "key", type=PLACE, metavar="KEY", help="Public key in PEM; each bundle must be signed by it."
        ),
        click.option(
            "--arch",
            "archs",
            type=_Wanted(),
            multiple=True,
            help="native: what the GPUs of this machine run; all; or an architecture, such as sm_90; repeatable; default native.",
        ),
    ):
        command = option(command)
    return command


def open_repository(address: Address, *, insecure: bool) -> Repository:
    """Open the repository of an address. Nothing is sent yet.

    Args:
        address: the address.
        insecure: value of ``--insecure``.

    Raises:
        RegistryError: the credentials cannot be read.
    """
    # tells a missing extra before anything else happens
    import requests  # noqa: F401 - of an extra

    credentials = find_credentials(address, os.environ)
    agent = f"nojit/{version_of('nojit')}"
    return Repository(Client(address, credentials, insecure=insecure, limits=LIMITS, agent=agent))


def release_in(layout: LayoutFolder, tag: str) -> tuple[str, Release]:
    """Return a release of a layout folder with its tag, which may be empty.

    Args:
        layout: the folder.
        tag: the tag; empty if the folder holds one release only.

    Raises:
        RegistryError: there is no such release, or several.
    """
    there = layout.tagged()
    found = [(name, document) for name, document in there if name == tag] if tag else there
    if len(found) == 1:
        name, document = found[0]
        return name, open_release(document, f"{layout.url} {name}".strip())
    names = ", ".join(name or "one without a tag" for name, _ in there) or "none"
    what = f"expected a release with tag {tag}" if tag else "expected one release"
    advice = "choose one with --tag" if len(there) > 1 else "write one with nojit save"
    raise refusal("layout", what, got=names, where=layout.url, advice=advice)


def push_to(
    out: Output, release: Release, source: ReleaseSource, address: Address, *, insecure: bool
) -> dict[str, Any]:
    """Copy a release to a registry, and show each bundle; return the command's JSON.

    Args:
        out: output of the command.
        release: the release, from `source`.
        source: the place that holds it.
        address: where to push it, with a tag.
        insecure: value of ``--insecure``.

    Raises:
        RegistryError: the release cannot be read or written, or the tag is that of something else.
    """
    if not address.tag:
        raise click.UsageError("expected an address with a tag to push to: oci://REGISTRY/REPOSITORY:TAG")
    repository = open_repository(address, insecure=insecure)
    there = repository.read_document(address.tag)
    # a container image of somebody else is not replaced
    old = open_release(there, str(address)).digest if there is not None else release.digest
    facts = copy_to(out, release, source, repository, address.tag)
    if old != release.digest:
        out.line(f"the tag was {old}")
    out.line(str(address.by_digest(release.digest)))
    return {"release": str(address), "replaced": old if old != release.digest else None, **facts}


def copy_to(out: Output, release: Release, source: ReleaseSource, target: ReleaseTarget, tag: str) -> dict[str, Any]:
    """Copy a release, and show each bundle; return what was copied as JSON.

    Args:
        out: output of the command.
        release: the release, from `source`.
        source: the place that holds it.
        target: the place to write it to.
        tag: its tag in `target`; empty for none.

    Raises:
        RegistryError: the release cannot be read or written.
    """

    def tell(name: str, size_bytes: int, sent: bool) -> None:
        out.line(f"{'WRITTEN' if sent else 'PRESENT'}  {name}  {size(size_bytes)}")

    copied = copy_release(release, source, target, tag, tell)
    out.line(
        f"{counted(len(release.offers), 'bundle')}, {counted(copied.statements, 'statement')}: "
        f"wrote {size(copied.sent_bytes)} of {size(copied.total_bytes)}"
    )
    bundles = [
        {
            "name": offer.name,
            "version": offer.version,
            "arch": offer.arch,
            "digest": offer.digest,
            "toolchain": offer.toolchain,
            "manifest": offer.manifest.digest,
        }
        for offer in release.offers
    ]
    return {"digest": release.digest, **asdict(copied), "bundles": bundles}


def pull_to(
    out: Output,
    source: ReleaseSource,
    release: Release,
    where: str,
    folder: Path | None,
    *,
    archs: Sequence[str],
    key: Path | None,
    keys: Path | None,
) -> dict[str, Any]:
    """Write the bundles of a release that a command line asks for into a folder, and show each; return the command's JSON.

    Args:
        out: output of the command.
        source: the place that holds the release.
        release: the release.
        where: its address, for messages.
        folder: value of ``--out``; None for ``artifacts``.
        archs: values of ``--arch``.
        key: value of ``--trust``.
        keys: value of ``--trusted-keys``.

    Raises:
        RegistryError: no bundle fits, or one cannot be read or written.
        BundleError: a bundle is damaged, or is not signed as required.
    """
    trusted = given_keys(key, keys, "--trust")
    chosen = _chosen(out, release, archs or (NATIVE,), where)

    def tell(one: Received) -> None:
        until = f", until {one.expires}" if one.expires else ""
        by = f", signed by {one.signed_by}, build {one.build_number}{until}" if one.signed_by else ""
        state = "PRESENT" if one.up_to_date else "PULLED "
        out.line(f"{state}  {one.path}  {size(one.size_bytes)}, {one.digest[:12]}{by}")

    def begin(name: str, size_bytes: int) -> None:
        out.note(f"reading {name}, {size(size_bytes)}")

    bundles = receive(source, chosen, folder or _FOLDER, trusted, tell, begin=begin)
    out.line(f"{counted(len(bundles), 'bundle')} of {where}, digest {release.digest}")
    if trusted is None:
        out.note("no signature checked: pass --trust KEY to accept only bundles that this key signed")
    return {"release": where, "digest": release.digest, "bundles": [asdict(one) for one in bundles]}


def _chosen(out: Output, release: Release, archs: Sequence[str], where: str) -> list[Offer]:
    """Return the bundles for the values of ``--arch``, in the order of the release."""
    if ALL in archs:
        return list(release.offers)
    names: set[str] = set()
    for arch in archs:
        found = _native(out, release, where) if arch == NATIVE else for_arch(release.offers, arch, where)
        names |= {offer.file_name for offer in found}
    return [offer for offer in release.offers if offer.file_name in names]


def _native(out: Output, release: Release, where: str) -> list[Offer]:
    driver = probe_driver()
    if not driver.devices:
        there = ", ".join(dict.fromkeys(offer.arch for offer in release.offers))
        what = "expected a GPU on this machine, for --arch native"
        advice = f"pass --arch all, or one of {there}"
        raise refusal("arch", what, got=driver.problem, where=where, advice=advice)
    chosen, unserved = for_devices(release.offers, driver.devices, where)
    for arch in unserved:
        out.warn(f"no bundle of the release runs on this machine's {arch}")
    for text in too_new(chosen, driver.version or 0):
        out.warn(text)
    return chosen
