"""Compiler of a build: compiles variants to images (cubins) with Triton."""
