"""Classes that other libraries' users know, over this library's operators: ``deepspeed``."""
