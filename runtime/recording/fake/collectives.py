"""Ranks of simulated GPUs: process groups of NCCL whose collectives move nothing.

Each rank is a process, as on GPUs, and finds its rank and the number of ranks in its environment. A collective keeps shapes and dtypes;
values are unknown, as those of all computed tensors are.
"""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import torch.cuda.nccl
import torch.distributed
from nojit.runtime.recording.fake.patches import Patches

__all__ = ["patch_collectives"]


class _Options(SimpleNamespace):
    """Settings of a group, which mean nothing here."""

    def __init__(self, *_args: Any, **settings: Any) -> None:
        super().__init__(**settings)


def patch_collectives(patches: Patches) -> None:
    """Make groups of NCCL of torch's own groups that communicate nothing; do nothing if this torch has no such groups.

    Args:
        patches: what keeps torch's own functions until the simulation ends.
    """
    if not torch.distributed.is_available():
        return
    from torch._C import _distributed_c10d as inner
    from torch.distributed import distributed_c10d as groups

    silent: Any = getattr(inner, "FakeProcessGroup", None)
    if silent is None:
        return
    make = getattr(silent, "_create_internal", silent)

    class Kind(type):
        """Class of `Group`: every silent group is an instance."""

        def __instancecheck__(cls, instance: Any) -> bool:
            return isinstance(instance, silent)

    class Group(metaclass=Kind):
        """Makes a group instead of ``ProcessGroupNCCL``."""

        Options = _Options

        def __new__(cls, _store: Any, rank: int, size: int, _options: Any = None) -> Any:
            return make(rank, size)

    # torch calls them for groups of NCCL alone
    for name in ("_set_sequence_number_for_group", "_shutdown", "abort", "eager_connect_single_device"):
        patches.put(silent, name, lambda *_args: None)
    patches.put(groups, "ProcessGroupNCCL", Group)
    patches.put(torch.distributed, "ProcessGroupNCCL", Group)
    patches.put(groups, "_NCCL_AVAILABLE", True)
    patches.put(torch.cuda.nccl, "version", lambda: (2, 27, 7))
    if getattr(groups, "default_pg_nccl_timeout", None) is None:
        patches.put(groups, "default_pg_nccl_timeout", timedelta(minutes=10))
