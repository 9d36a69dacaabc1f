"""Identity of a toolchain: which Tritons there are, their settings, and digests of their files."""
