"""Wheels of bundles: pip and uv install them, `nojit.runtime` finds them. They hold data only, and the same bytes on every machine."""
