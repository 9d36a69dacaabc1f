"""Variant tables as Python sees them: params, cases, configs, launches, tuning."""
