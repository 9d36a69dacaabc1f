"""Selection of configs from measurements, for tuned tables, and its evaluation."""
