"""``python -m nojit.aot.cli``: the ``nojit`` command where no script is installed."""

from nojit.aot.cli import main

main()
