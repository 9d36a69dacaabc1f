"""Load a bundle of ahead-of-time compiled Triton kernels and launch them: no Triton, no compiler, no writable cache."""
