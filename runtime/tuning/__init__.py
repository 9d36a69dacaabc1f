"""Tuning: look-up of configs, tuned tables as files, overrides."""
