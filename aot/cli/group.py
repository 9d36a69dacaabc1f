"""The group of all commands: it loads each on demand, and turns every failure into a message and an exit code."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import sys
import traceback
from collections.abc import Sequence
from typing import Any, NoReturn

import click
from nojit.aot.cli.console import JSON_SCHEMA, clean, error_label
from nojit.aot.cli.exit_codes import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_TERMINATED, exit_code
from nojit.aot.cli.lazy import LazyGroup
from nojit.runtime.base.wording import told
from nojit.runtime.errors import ManifestError, NojitError

__all__ = ["cli"]

# commands in the order of typical use; a command that is not here follows by name
_ORDER = (
    "init",
    "record",
    "manifest",
    "build",
    "run",
    "coverage",
    "inspect",
    "verify",
    "sign",
    "diff",
    "extract",
    "wheel",
    "push",
    "pull",
    "save",
    "load",
    "clean",
    "cache",
    "doctor",
    "bench",
    "tune",
    "schema",
    "config",
    "completion",
    "help",
)
# modules that a plain installation lacks, with the extra that installs them
_EXTRAS = {
    "cryptography": "sign",
    "msgspec": "build",
    "numpy": "tune",
    "packaging": "cli",
    "requests": "oci",
    "rich": "cli",
    "scipy": "tune",
    "securesystemslib": "sign",
    "sklearn": "tune",
    "triton": "build",
    "zstandard": "build",
}
# narrowest terminal that click fits its help pages to
_CLICK_COLUMNS_MIN = 52
# attributes of an error that its JSON contains
_ERROR_FACTS = ("what", "got", "where", "rule", "reason", "log")
_MISTAKE_FACTS = ("what", "got", "where", "file", "line", "column", "key")


class _Commands(LazyGroup):
    """The top group. It sets the exit codes."""

    def main(  # type: ignore[override] # it never returns, for any `standalone_mode`
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **_: Any
    ) -> NoReturn:
        """Run a command line and exit; print a failure as one paragraph on standard error."""
        words = list(sys.argv[1:] if args is None else args)
        sys.exit(self._run(words, prog_name))

    def _run(self, words: list[str], prog_name: str | None) -> int:
        try:
            code = super().main(words, prog_name=prog_name, standalone_mode=False, terminal_width=_help_width())
        except click.Abort as error:
            return _stop(words, error.__cause__ or error, "interrupted", EXIT_INTERRUPTED)
        except SystemExit as error:
            if error.code != EXIT_TERMINATED:
                raise
            return _stop(words, error, "terminated", EXIT_TERMINATED)
        except click.ClickException as error:
            # click puts some choices on lines of their own
            return _fail(words, error, re.sub(r"\s*\n\s*", " ", error.format_message()), error.exit_code)
        except ModuleNotFoundError as error:
            missing = (error.name or "").partition(".")[0]
            if missing not in _EXTRAS:
                raise
            # nojit itself depends on it, and the extra that pins it would bring a compiler to a machine that serves
            command = next((word for word in words if not word.startswith("-")), "")
            alone = missing == "zstandard" and command != "build"
            package = missing if alone else f"'nojit[{_EXTRAS[missing]}]'"
            return _fail(words, error, f"expected {missing} to be installed: pip install {package}")
        except (NojitError, OSError) as error:
            return _fail(words, error, _message(error), exit_code(error))
        return code or 0


def _help_width() -> int | None:
    """Return the width of help pages on a narrow terminal, for which click writes 50 columns; None leaves it to click."""
    columns = shutil.get_terminal_size().columns
    return max(columns - 2, 20) if columns < _CLICK_COLUMNS_MIN else None


def _message(error: Exception) -> str:
    """Return the message of an error, with an expectation added if the system raised it."""
    if not isinstance(error, OSError) or not error.strerror:
        return told(error)
    what = "expected to write the output" if error.filename is None else "expected a file or folder to use"
    return f"{what}, got {told(error)}"


def _stop(words: Sequence[str], error: BaseException, what: str, code: int) -> int:
    """Say on standard error that a signal ended the command, with the notes of `error`, and with --json as JSON on standard output.

    `code`: exit code.
    """
    message = ": ".join([what, *getattr(error, "__notes__", ())])
    # the reader of standard error may be gone, too
    with contextlib.suppress(OSError):
        click.echo(message, err=True)
    _write_error(words, error, message, code)
    return code


def _fail(words: Sequence[str], error: Exception, message: str, code: int = EXIT_FAILED) -> int:
    """Report an error on standard error, and with --json as JSON on standard output.

    `code`: exit code.
    """
    message = clean(message.rstrip(), keep="\n")
    if words.count("--verbose") + sum(word.count("v") for word in words if re.match(r"-[qv]+\Z", word)) > 1:
        traceback.print_exception(error)
    if isinstance(error, click.UsageError) and error.ctx is not None:
        click.echo(error.ctx.get_usage() if words else error.ctx.get_help(), err=True)
        message += f" (see: {error.ctx.command_path} -h)"
    click.echo(f"{error_label()} {message}", err=True)
    _write_error(words, error, message, code)
    return code


def _write_error(words: Sequence[str], error: BaseException, message: str, code: int) -> None:
    """Write an error as JSON on standard output, if the command line asks for JSON.

    `code`: exit code.
    """
    # standard output may be what failed in the first place
    with contextlib.suppress(OSError):
        if "--json" in words:
            facts = {key: value for key, value in vars(error).items() if key in _ERROR_FACTS}
            body = {"type": type(error).__name__, "message": message, "exit_code": code, **facts}
            if isinstance(error, ManifestError):
                body["mistakes"] = [
                    {key: getattr(mistake, key, None) for key in _MISTAKE_FACTS} for mistake in error.mistakes
                ]
            click.echo(json.dumps({"schema": JSON_SCHEMA, "error": body}, indent=2))


def _print_version(ctx: click.Context, _param: click.Parameter, asked: bool) -> None:
    if asked and not ctx.resilient_parsing:
        from importlib.metadata import version  # slow to import, and only this needs it

        click.echo(f"nojit {version('nojit')}")
        ctx.exit()


@click.group(
    cls=_Commands,
    package="nojit.aot.cli.commands",
    order=_ORDER,
    no_args_is_help=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Show the version."
)
def cli() -> None:
    """Compile Triton kernels ahead of time into bundles; inspect, verify, sign and ship them.

    Every command except run takes --json (one JSON object on standard output, everything else on standard error), -q and -v, before or
    after its name. `nojit help COMMAND` shows its options.
    """
