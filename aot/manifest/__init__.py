"""Manifests: read them, and report each mistake with its place."""
