"""Benchmarks of the runtime: what one launch costs, and what a process start costs. `docs/benchmarks.md` says how.

Everything here can be imported where neither torch nor Triton is; what measures them does so in processes of their own.
"""
