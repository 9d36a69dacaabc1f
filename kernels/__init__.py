"""Torch operators over Triton kernels that were compiled ahead of time.

Each family of operators is a package, such as ``pointwise``, ``flash_attention`` or ``block_sparse``. Its
``kernel*.py`` hold the Triton source that the build compiles, ``op.py`` the public operators, ``reference.py`` the same
mathematics in plain torch, and ``problems.py`` the shapes for tests and the tuner. Importing a family imports neither
torch nor Triton; its first use of an operator does. ``compat`` provides classes with the interfaces of other libraries
on top of these operators.
"""
