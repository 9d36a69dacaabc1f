"""The tuner: times every config of a bundle, keeps the measurements, and freezes the few configs that matter.

A machine that measures needs the runtime and torch; one that selects needs neither a GPU nor torch.
"""
