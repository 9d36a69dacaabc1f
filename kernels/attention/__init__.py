"""Parts that the families of attention share: widths of tiles, allocation of results, and device functions of their kernels."""
