"""Compilation for AMD's GPUs: archs, limits, options, and the GPU that kernel sources see."""
