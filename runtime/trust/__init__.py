"""Whether a bundle may be loaded: policies, trusted keys, signed statements."""
