"""``nojit schema``: Print the JSON schema of manifests."""

from __future__ import annotations

import json

import click
from nojit.aot.cli.console import Output, output_options
from nojit.aot.manifest.schema import json_schema

__all__ = ["command"]


@click.command("schema")
@output_options
def command(out: Output) -> None:
    """Print the JSON schema of manifests, for editors.

    Write it to a file and name the file in the first line of a manifest: `#:schema manifest.schema.json`. Taplo ("Even Better TOML") then
    completes keys and values. The output is JSON with and without --json.
    """
    if out.json or not out.quiet:
        click.echo(json.dumps(json_schema(), indent=2))
