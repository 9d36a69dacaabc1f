"""Cache of a build: stores compiled variants under their keys, in a local folder and in a shared place."""
