"""Packing: from images to a bundle's bytes."""
