"""Readers of bundles, of their provenance statements, and of the state of this machine."""
