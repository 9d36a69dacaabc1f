"""Compilation of variants on other machines: jobs are data, a Dask scheduler distributes them."""
