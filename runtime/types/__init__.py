"""Types of arguments, in the one spelling that signatures have. The list of dtypes is the engine's ``base/dtype.c``."""
