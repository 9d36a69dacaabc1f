"""Releases of bundles in OCI registries and in layout folders: push, pull, copy."""
