"""The softmax over block-sparse matrices, and its gradient."""
