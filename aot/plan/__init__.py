"""Planner of a build: merges manifests by bundle, lists the variants of each, and checks them against the kernels' sources."""
