"""Modules that every package of the runtime may import: records, messages, JSON, launch options, limits of GPUs."""
