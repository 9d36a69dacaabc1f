"""Counters, events, launch hooks and telemetry of the runtime."""
