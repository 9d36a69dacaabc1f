"""The expression language: programs, which the engine's parser makes, and values."""
