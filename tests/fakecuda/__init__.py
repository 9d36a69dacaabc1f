"""A scripted, fault-injecting ``libcuda.so.1`` and a framework without a GPU: the launch path is tested against them.

The fixtures ``fakecuda`` and ``faketorch`` (tests/conftest.py) build and hand them out. The fake driver parses each
cubin that it is given and checks every launch against it: handles, context, stream, block, shared memory, cluster, grid,
and every byte of every argument. What a right caller never does is a *violation* and fails the test.
"""

from tests.fakecuda.build import build_driver, build_faketorch, load_extension
from tests.fakecuda.driver import CallsHeld, FakeCuda, Launch
from tests.fakecuda.tensormap import TensorMap

__all__ = ["CallsHeld", "FakeCuda", "Launch", "TensorMap", "build_driver", "build_faketorch", "load_extension"]
