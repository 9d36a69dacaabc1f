"""The shared cache that a command line or the environment names: options, keys, places."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from nojit.aot.cache.store_urls import check_url
from nojit.aot.cli.console import PLACE
from nojit.aot.cli.options.build_request import SharedRequest
from nojit.runtime.base.environment import CACHE, CACHE_READONLY, CACHE_SIGN, CACHE_TRUST, KEY_PASSWORD

if TYPE_CHECKING:
    from nojit.aot.cache.shared import SharedCache
    from nojit.aot.signing.cache_signatures import EntryVerifier

__all__ = ["given_shared", "open_shared", "open_verifier", "place_options", "shared_options"]

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

_FLAGS: Final = {"0": False, "1": True}


def _url(_context: click.Context, _param: click.Parameter, text: str | None) -> str | None:
    """Check the URL of a shared cache, as a callback of click."""
    if text is None:
        return None
    try:
        return check_url(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def place_options(command: F) -> F:
    """Add the argument and the option that name a cache to a command; it passes their values to `nojit.aot.cache.upkeep.open_places`."""

    def local(context: click.Context, _param: click.Parameter, folder: Path | None) -> Path | None:
        if folder is not None and context.params.get("url") is not None:
            raise click.UsageError("expected either a URL or --cache-dir, got both")
        return folder

    command = click.option("--cache-dir", type=PLACE, callback=local, help="Local cache; default NOJIT_CACHE_DIR.")(
        command
    )
    return click.argument("url", metavar="[URL]", required=False, callback=_url, is_eager=True)(command)


def shared_options(command: F) -> F:
    """Add the options of a shared cache to a command; `given_shared` reads them."""
    for option in (
        click.option(
            "--cache-trust",
            "trust",
            multiple=True,
            type=PLACE,
            metavar="KEY",
            help="Take only shared entries that this public key signed; repeatable; default NOJIT_CACHE_TRUST.",
        ),
        click.option(
            "--cache-sign",
            "sign",
            type=PLACE,
            metavar="KEY",
            help="Sign the written shared entries with this private key; default NOJIT_CACHE_SIGN.",
        ),
        click.option(
            "--cache-readonly",
            "readonly",
            is_flag=True,
            help="Write nothing to the shared cache, for builds of others' changes; default NOJIT_CACHE_READONLY.",
        ),
        click.option(
            "--cache",
            "cache_url",
            metavar="URL",
            callback=_url,
            help="Shared cache, such as s3://bucket/nojit or file:///mnt/nojit; default NOJIT_CACHE.",
        ),
    ):
        command = option(command)
    return command


def given_shared(
    cache_url: str | None, *, readonly: bool, sign: Path | None, trust: Sequence[Path]
) -> SharedRequest | None:
    """Return the shared cache of a command line, completed by the environment; None if neither names one.

    Args:
        cache_url: value of ``--cache``.
        readonly: value of ``--cache-readonly``.
        sign: value of ``--cache-sign``.
        trust: values of ``--cache-trust``.

    Raises:
        UsageError: an option needs ``--cache``, or a variable has an invalid value.
    """
    url = cache_url or _parsed(CACHE, os.environ.get(CACHE, ""), check_url)
    if not url:
        given = (
            ["--cache-readonly"] * readonly + ["--cache-sign"] * (sign is not None) + ["--cache-trust"] * bool(trust)
        )
        if given:
            raise click.UsageError(f"expected --cache URL, or NOJIT_CACHE, with {given[0]}")
        return None
    keys = os.environ.get(CACHE_TRUST, "")
    signs = os.environ.get(CACHE_SIGN, "")
    return SharedRequest(
        url=url,
        readonly=readonly or bool(_parsed(CACHE_READONLY, os.environ.get(CACHE_READONLY, ""), _flag)),
        sign=sign or (Path(signs) if signs else None),
        trust=tuple(trust) or tuple(Path(path) for path in keys.split(os.pathsep) if path),
    )


def open_shared(request: SharedRequest, wait_s: float, tell: Callable[[str], None]) -> SharedCache:
    """Open a shared cache. Nothing is read or written yet.

    Args:
        request: the requested cache.
        wait_s: longest time to wait for a variant that another builder has claimed.
        tell: called with warnings about the cache.

    Raises:
        PackageError: a library is not installed, or the private key cannot be used.
        BundleTrustError: a public key cannot be used.
    """
    from nojit.aot.cache.shared import SharedCache
    from nojit.aot.cache.store_urls import open_store
    from nojit.aot.cache.time_limits import Limits

    limits = Limits(wait_s=wait_s)
    signer = None
    if request.sign is not None and not request.readonly:
        from nojit.aot.signing.cache_signatures import EntrySigner  # of an extra
        from nojit.aot.signing.sign import read_signer  # of an extra

        password = os.fsencode(os.environ.get(KEY_PASSWORD, "")) or None
        signer = EntrySigner(read_signer(request.sign, password))
    return SharedCache(
        open_store(request.url, limits.operation_s),
        readonly=request.readonly,
        signer=signer,
        verifier=open_verifier(request.trust),
        limits=limits,
        tell=tell,
    )


def open_verifier(trust: Sequence[Path]) -> EntryVerifier | None:
    """Return the verifier of signed entries; None without a key.

    Args:
        trust: files of public keys.

    Raises:
        BundleTrustError: a key cannot be used.
    """
    if not trust:
        return None
    from nojit.aot.signing.cache_signatures import read_verifier  # of an extra

    return read_verifier(trust)


def _parsed(name: str, text: str, read: Callable[[str], T]) -> T | None:
    """Return the value of a variable; None if it is empty."""
    try:
        return read(text) if text else None
    except ValueError as error:
        raise click.UsageError(f"{name}: {error}") from None


def _flag(text: str) -> bool:
    if text not in _FLAGS:
        raise ValueError(f"expected 0 or 1, got {text!r}")
    return _FLAGS[text]
