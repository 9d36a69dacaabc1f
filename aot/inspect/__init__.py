"""Readers of bundles and of the state of this machine."""
