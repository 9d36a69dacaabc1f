"""The tuner: time every config of a tuning bundle, store the measurements, and select a portfolio of few configs.

Measuring needs a GPU, the runtime and torch. Selecting needs none of them.
"""
