"""Drop-in classes of other libraries on top of these operators: ``deepspeed``."""
