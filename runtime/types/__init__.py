"""Types of arguments, spelled as in signatures. The list of dtypes is the engine's ``base/dtype.c``."""
