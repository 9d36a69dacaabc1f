"""Parts of every operator's calls: checks, torch's state, registration, the cache of calls, descriptions of tensors."""
