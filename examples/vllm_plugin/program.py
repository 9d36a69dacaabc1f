"""The start of a worker: it loads plugins, and warms its kernels up."""

from kernel import SLOTS
from standin import load_plugins

if __name__ == "__main__":
    load_plugins()
    print(f"{SLOTS.warmup()} keys are ready")
