"""``python -m nojit``: the command line, for when the script is not on the path."""

from __future__ import annotations

from nojit.aot.cli import main

main()
