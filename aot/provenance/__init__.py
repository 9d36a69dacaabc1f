"""Provenance statements: what a bundle was built from."""
