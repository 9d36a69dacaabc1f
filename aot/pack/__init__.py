"""Packer of bundles: combines compiled images into the bytes of a bundle file."""
