"""Looking at bundles, at their statements, and at machines."""
