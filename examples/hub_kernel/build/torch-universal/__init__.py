"""Gated activations: a package of kernels for the Hugging Face Hub, with the compiled kernels in it."""

from .activations import gelu_and_mul, silu_and_mul

__all__ = ["gelu_and_mul", "silu_and_mul"]
