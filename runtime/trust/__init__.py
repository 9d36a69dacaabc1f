"""Trust in bundles: policies, trusted keys, signed statements."""
