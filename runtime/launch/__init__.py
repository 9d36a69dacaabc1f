"""First launches: facts of a call, keys, images, plans."""
