"""The kernel library: fast, tested operators over kernels that were compiled ahead of time.

Each family is a package, such as ``pointwise``, ``flash_attention`` or ``block_sparse``. In a family, ``kernel.py`` holds the
Triton source that the build compiles, ``op.py`` the public operators, ``reference.py`` the same mathematics in plain torch,
and ``problems.py`` the shapes for tests and the tuner. Importing a family imports neither torch nor Triton until an operator is
used. ``compat`` provides other libraries' classes on top of these operators.
"""
