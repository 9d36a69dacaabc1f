"""Measurement of the configs of a tuning bundle, in a process that may crash."""
