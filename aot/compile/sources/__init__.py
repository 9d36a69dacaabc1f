"""Sources of kernels as a build reads them, without Triton: import, decorators, and records of the files that were read."""
