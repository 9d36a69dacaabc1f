"""Compilation: from variants to images."""
