"""Expansion of a kernel's manifest entry into variants: of an arch, of a tuning space, or of tuned tables."""
