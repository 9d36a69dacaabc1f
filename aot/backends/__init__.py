"""Differences between vendors of GPUs in a build: one package each, listed in `nojit.aot.backends.registry`."""
