"""Modules that every package of the build side may import. They import no other package of it."""
