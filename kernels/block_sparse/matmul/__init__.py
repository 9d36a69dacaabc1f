"""Products of block-sparse matrices by dense ones, and the active blocks of products of dense ones."""
