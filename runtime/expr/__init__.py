"""The expression language: parser, programs, values."""
