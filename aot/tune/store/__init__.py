"""Database of all measurements of a kernel."""
