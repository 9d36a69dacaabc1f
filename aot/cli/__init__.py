"""The ``nojit`` command."""
