"""Compilation for CUDA: ptxas, and the device that kernel sources see."""
