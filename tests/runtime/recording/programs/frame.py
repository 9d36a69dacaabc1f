"""A framework with a class that kernels name in annotations, and that no build has."""


class Tensor:
    """A tensor."""
