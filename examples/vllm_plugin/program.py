"""The start of a worker: it loads plugins, and warms its kernels up."""

import sys

try:
    from kernel import SLOTS
    from standin import load_plugins
except ModuleNotFoundError as error:
    sys.exit(f"error: expected {error.name} to be installed: pip install torch triton")

if __name__ == "__main__":
    load_plugins()
    print(f"{SLOTS.warmup()} keys are ready")
