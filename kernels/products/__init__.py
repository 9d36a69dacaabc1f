"""Parts that the kernels of dense products share: order of tiles, K loops, epilogues, and the TMA pipeline for sm_90."""
