"""Shared parts of dense products: tiles and their order, K loops, epilogues, the loop over TMA descriptors for sm_90."""
