"""Report on the tunables that matter for each class of shapes."""
