"""``nojit sign``: Sign bundles with a key."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click
from nojit.aot.cli.console import PLACE, Output, output_options
from nojit.aot.cli.shipping import warn_of_changes
from nojit.aot.inspect.contents import open_bundle
from nojit.aot.inspect.places import find_bundles
from nojit.aot.inspect.verification import verify_bundle
from nojit.aot.provenance.statement import read_statement, statement_path
from nojit.aot.signing.sign import NewKey, make_key, moment_of, read_signer, sign_bundle
from nojit.runtime.base.environment import KEY_PASSWORD

__all__ = ["command"]


@click.command("sign")
@click.argument("places", metavar="BUNDLE|DIR...", nargs=-1, type=PLACE)
@click.option("--key", "key_path", type=PLACE, help="Private Ed25519 key in PEM.")
@click.option("--new-key", "new_key", type=PLACE, help="Create a key at PATH, and PATH.pub, and sign with it.")
@click.option(
    "--expires", default="", metavar="DATE", help="End of the signature's validity, a day or moment in UTC: 2027-01-01."
)
@click.option("--valid-for", default="", metavar="TIME", help="Validity of the signature from now: 90d, 12h, 8w.")
@output_options
def command(  # noqa: PLR0917 - click passes each by name
    out: Output, places: tuple[Path, ...], key_path: Path | None, new_key: Path | None, expires: str, valid_for: str
) -> None:
    """Check bundles and sign the provenance statement beside each: <bundle>.intoto.jsonl.

    A folder means every bundle in it. The statement, written by `nojit build`, pins every byte of the bundle. A process with
    NOJIT_TRUST=signed loads only bundles that a trusted key signed. Signatures end at --expires or after --valid-for by the clock of the
    loading machine; without either they do not end. NOJIT_KEY_PASSWORD decrypts the key, and encrypts a new one.
    """
    if (key_path is None) == (new_key is None):
        raise click.UsageError("expected either --key or --new-key: --new-key PATH creates a key")
    if key_path is not None and not places:
        raise click.UsageError("expected bundles to sign: name files or folders after the options")
    until = _until(places, expires, valid_for)
    password = os.fsencode(os.environ.get(KEY_PASSWORD, "")) or None
    bundles, changed = find_bundles(places), []
    for path in bundles:
        # all bundles are signed or none, and no new key remains if none is signed
        with open_bundle(path) as bundle:
            verify_bundle(bundle)
        if read_statement(statement_path(path)).is_dirty():
            changed.append(str(path))
    warn_of_changes(out, changed)
    made = None if new_key is None else make_key(new_key, password)
    # with a new key, standard output is exactly the entry for the file of trusted keys
    say = out.line if made is None else out.note
    signed = []
    if bundles:
        signer = read_signer(key_path or Path(str(new_key)), password)
        for path in bundles:
            one = sign_bundle(path, signer, until)
            signed.append(one)
            say(
                f"SIGNED  {path}  {one.digest[:12]}, build {one.build_number}{f', until {until}' if until else ''}, in {one.statement}"
            )
    out.emit("sign", {"key": asdict(made) if made else None, "bundles": [asdict(one) for one in signed]})
    if made is not None:
        _show_key(out, made)


def _until(places: Sequence[Path], expires: str, valid_for: str) -> str:
    """Return the end of the validity of the signatures of some bundles; empty for none."""
    if expires and valid_for:
        raise click.UsageError("expected only one of --expires and --valid-for, got both")
    option = "--expires" if expires else "--valid-for"
    if (expires or valid_for) and not places:
        raise click.UsageError(f"expected bundles to sign with {option}: a key does not expire, only its signatures do")
    try:
        return moment_of(expires, valid_for)
    except ValueError as error:
        raise click.UsageError(f"{option}: {error}") from None


def _show_key(out: Output, made: NewKey) -> None:
    """Show a new key as an entry of the file of trusted keys."""
    out.note(
        f"{made.private} is the private key {made.key_id[:12]}, {made.public} the public key. To trust it, add this to the file of trusted keys:"
    )
    pem = Path(made.public).read_text(encoding="ascii")
    stem = Path(made.private).stem
    # TOML and JSON have the same escapes
    name = json.dumps(stem, ensure_ascii=False) if stem.isprintable() else f'"{made.key_id[:12]}"'
    out.block(f'schema = 1\n\n[[key]]\nname = {name}\npublic = """\n{pem}"""\n')
