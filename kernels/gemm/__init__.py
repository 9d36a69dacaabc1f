"""What families of dense products share: tiles and their order, K loops, epilogues, the loop over tensor maps for sm_90."""
