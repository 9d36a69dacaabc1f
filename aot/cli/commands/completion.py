"""``nojit completion``: Print the completion script of a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class
from nojit.aot.cli.console import Output, output_options

__all__ = ["command"]

_SHELLS = ("bash", "zsh", "fish")


@click.command("completion")
@click.argument("shell", type=click.Choice(_SHELLS))
@output_options
@click.pass_context
def command(context: click.Context, out: Output, shell: str) -> None:
    """Print the completion script of a shell. Add the line for your shell to its start-up file.

    \b
    bash  eval "$(nojit completion bash)"
    zsh   eval "$(nojit completion zsh)"
    fish  nojit completion fish | source
    """  # noqa: D301 - click needs the backspace character
    kind = get_completion_class(shell)
    if kind is None:
        raise click.ClickException(f"expected a version of click that completes for {shell}: pip install -U click")
    script = kind(context.find_root().command, {}, "nojit", "_NOJIT_COMPLETE").source()
    out.emit("completion", {"shell": shell, "script": script})
    out.block(script)
