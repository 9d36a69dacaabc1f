"""Progress of long commands: a bar on a terminal, lines elsewhere, nothing with -q."""
