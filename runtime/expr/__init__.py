"""The expression language of manifests: programs, which the engine's parser makes, and values."""
