"""Where bundles are found: the environment, installed wheels, a checkout."""
