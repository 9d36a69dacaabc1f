"""Counters, events, launch hooks and telemetry of what the runtime does."""
