"""Discovery of bundles: the environment, installed wheels, a checkout."""
