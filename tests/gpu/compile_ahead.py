"""Compile every variant that `tests.gpu.test_jit_equality` launches through Triton into Triton's cache, on every core.

    python -m tests.gpu.compile_ahead [FAMILY...]

`NOJIT_TEST_PROFILE` names the profile, else it is ``full``.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Compile, and say how many variants there are."""
    # not above: the processes that compile import this module too
    import torch

    from tests.gpu.families import FAMILIES
    from tests.gpu.replay import compile_ahead, plan_for
    from tests.gpu.test_jit_equality import PROFILE, paths

    major, minor = torch.cuda.get_device_capability()
    # of what families borrow they launch little, which is compiled when it is launched
    manifests = [manifest for name in sys.argv[1:] or FAMILIES for manifest in FAMILIES[name].own]
    plan = plan_for(paths(manifests), f"sm_{major}{minor}", PROFILE)
    sys.stdout.write(f"{compile_ahead(plan)} variants compiled\n")


if __name__ == "__main__":
    main()
