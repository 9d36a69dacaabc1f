"""The ``nojit`` command. No other package of the build side prints or exits.

Each command has its own module, loaded on demand, so that ``nojit inspect`` imports no compiler.
"""

from __future__ import annotations

import io
import os
import signal
import sys
from importlib.util import find_spec
from types import FrameType
from typing import NoReturn

__all__ = ["main"]


def main() -> NoReturn:
    """Run the command line of this process and exit."""
    _open_closed_streams()
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        # the encoding of the locale may lack a character of a path
        sys.stdout.reconfigure(errors="backslashreplace")
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL)):
        # a signal that the parent process ignored stays ignored
        if signal.getsignal(number) is usual:
            signal.signal(number, _end)
    try:
        # the runtime alone installs the script, too; rich is slow to import, and few commands need it
        if any(find_spec(name) is None for name in ("click", "rich")):
            sys.exit("error: the command line of nojit needs the extra cli: pip install 'nojit[cli]'")
        from nojit.aot.cli.group import cli
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(128 + signal.SIGINT)
    cli.main(prog_name="nojit")


def _open_closed_streams() -> None:
    """Open closed standard streams on the null device, before another file gets their descriptors."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115 - for the whole process


def _end(number: int, _frame: FrameType | None) -> NoReturn:
    """Unwind the stack, so that workers and temporary files are cleaned up as after an error."""
    # a signal can arrive twice, from the terminal and from the parent: the second must not interrupt the cleanup. Not SIG_IGN,
    # because Python prints an error for a signal that arrived before it was ignored
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, _ignore)
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    sys.exit(128 + number)


def _ignore(_number: int, _frame: FrameType | None) -> None:
    pass
