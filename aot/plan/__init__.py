"""Planner of a build: lists the variants of each bundle from manifests and targets."""
