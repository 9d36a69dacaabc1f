"""Classes with the interfaces of other libraries on top of nojit's operators: the package ``deepspeed``."""
