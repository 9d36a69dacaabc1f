"""Fuzz targets of the engine: C programs without Python, for libFuzzer or, without clang, for ``main.c``."""
