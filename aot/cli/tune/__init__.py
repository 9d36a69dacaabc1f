"""Options and progress that the commands of ``nojit tune`` share."""
