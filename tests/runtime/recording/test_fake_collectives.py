"""Ranks of simulated GPUs: groups of NCCL that communicate nothing."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from nojit.runtime.autostart import environment  # noqa: E402 - after the check for torch
from nojit.runtime.recording.fake.machine import gpu  # noqa: E402

# torch's own, of what torch.compile imports
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")

RANK = """
import os
import torch
import torch.distributed as dist

rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("nccl", init_method="file://" + os.environ["STORE"], rank=rank, world_size=ranks)
device = torch.device("cuda", dist.get_rank())
torch.cuda.set_device(device)
x = torch.ones(4, device=device)
dist.all_reduce(x)
gathered = [torch.empty_like(x) for _ in range(dist.get_world_size())]
dist.all_gather(gathered, x)
dist.barrier()
dist.all_reduce(x, async_op=True, group=dist.new_group([0, 1])).wait()
print(dist.get_backend(), dist.get_world_size(), x.device, [tuple(each.shape) for each in gathered])
try:
    x.tolist()
except Exception as error:
    print(type(error).__name__)
dist.destroy_process_group()
"""


def test_each_rank_has_a_gpu_and_collectives_keep_shapes_without_values(tmp_path):
    ranks = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", f"import triton\n{RANK}"],
            env=environment(
                os.environ
                | {"STORE": str(tmp_path / "store"), "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"},
                NOJIT_RECORD=str(tmp_path / "r"),
                NOJIT_RECORD_FAKE="sm_90",
            ),
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    told = [each.communicate(timeout=300)[0].splitlines() for each in ranks]
    assert told == [[f"nccl 2 cuda:{rank} [(4,), (4,)]", "FakeValueError"] for rank in range(2)]


def test_the_end_of_the_simulation_gives_torch_its_groups_back():
    from torch.distributed import distributed_c10d as groups

    names = ("_NCCL_AVAILABLE", "ProcessGroupNCCL", "default_pg_nccl_timeout")
    before = [vars(groups).get(name) for name in names]
    with gpu("sm_90"):
        assert torch.distributed.is_nccl_available()
    assert [vars(groups).get(name) for name in names] == before
