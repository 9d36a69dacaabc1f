"""GPUs and tensors that do not exist: run a program's own launcher code on a machine without a GPU."""
