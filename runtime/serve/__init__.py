"""Serve unmodified Triton programs from bundles."""
