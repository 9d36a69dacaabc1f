"""Wheels of bundles: what pip and uv install, so that `nojit.runtime` finds it. Pure data, the same bytes wherever made."""
