"""Signatures of bundles, and verification by a second build."""
