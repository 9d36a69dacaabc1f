"""Reader of manifests, the TOML files that list the kernels to build; reports each mistake with its position."""
