"""Benchmarks of the runtime: the host time of one launch, and the time of a process start. See `docs/benchmarks.md`.

These modules import without torch and Triton. Measurements that need either run in child processes.
"""
