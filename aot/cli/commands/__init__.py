"""One module for each command of ``nojit``, with its name. The first line of a module is the summary of the command."""
