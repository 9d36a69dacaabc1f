"""Provenance and signatures of bundles."""
