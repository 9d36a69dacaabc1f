"""Code that differs between vendors of GPUs, one package each."""
