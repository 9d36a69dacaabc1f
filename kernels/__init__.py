"""The kernel library: fast, tested operators over kernels that were compiled ahead of time.

Each family is a package: ``pointwise``, ``flash_attention``, ``block_sparse``. In each, ``kernel.py`` holds the Triton
source that the build compiles, ``op.py`` the operators that users call, ``reference.py`` the same mathematics in plain
torch, and ``problems.py`` the shapes that tests and the tuner run. Importing a family imports neither torch nor Triton
before an operator is asked for. ``compat`` has other libraries' classes over these operators.
"""
