"""Triton's JIT for calls that no variant of a bundle matches."""
