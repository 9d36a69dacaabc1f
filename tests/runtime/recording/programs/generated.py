"""Modules in the form in which Inductor writes its kernels, and a GPU's answers that Inductor asks for."""

import itertools
from types import SimpleNamespace

from nojit.runtime.recording import inductor_hooks

HEADER = """
import triton
import triton.language as tl

from torch._inductor.runtime import triton_helpers, triton_heuristics
from torch._inductor.runtime.triton_helpers import libdevice, math as tl_math
from torch._inductor.runtime.hints import DeviceProperties
triton_helpers.set_driver_to_gpu()
"""

POINTWISE = (
    HEADER
    + """
@triton_heuristics.pointwise(
    size_hints={{'x': 4096}},
    filename=__file__,
    triton_meta={{'signature': {{'in_ptr0': '*fp32', 'out_ptr0': '*fp32', 'xnumel': 'i32', 'XBLOCK': 'constexpr'}},
        'device': DeviceProperties(type='cuda', index={device}, multi_processor_count={count}, cc=90, major=9,
            regs_per_multiprocessor=65536, max_threads_per_multi_processor=2048, max_threads_per_block=1024, warp_size=32),
        'constants': {{}}, 'configs': [{{(0,): [['tt.divisibility', 16]], (1,): [['tt.divisibility', 16]]}}]}},
    inductor_meta={{'grid_type': 'Grid1D', 'kernel_name': 'triton_poi_fused_tanh_0', 'mutated_arg_names': [],
        'optimize_mem': False, 'autotune_hints': set(), 'backend_hash': 'X', 'assert_indirect_indexing': True,
        'autotune_local_cache': False, 'autotune_pointwise': True, 'force_disable_caches': False,
        'dynamic_scale_rblock': True, 'max_autotune': False, 'max_autotune_pointwise': False, 'store_cubin': False,
        'coordinate_descent_tuning': True, 'spill_threshold': 16, 'min_split_scan_rblock': 256}},
    min_elem_per_thread=0
)
@triton.jit
def triton_poi_fused_tanh_0(in_ptr0, out_ptr0, xnumel, XBLOCK : tl.constexpr):
    xindex = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    tmp0 = tl.load(in_ptr0 + (xindex), xmask)
    tmp1 = libdevice.tanh(tmp0) + {constant}
    tl.store(out_ptr0 + (xindex), tmp1, xmask)
"""
)


def pointwise(*, device=0, count=132, constant=1.0):
    """Return the text of a module as Inductor writes it on one machine."""
    return POINTWISE.format(device=device, count=count, constant=constant)


def load(text):
    """Return the autotuner of a generated module, as `AsyncCompile.triton` loads it."""
    from torch._inductor.codecache import PyCodeCache

    return PyCodeCache.load(text).triton_poi_fused_tanh_0


class Kernel:
    """Stands for a bundle's kernel, and keeps its launches."""

    name = "triton_poi_fused_tanh_0"
    arg_names = ["in_ptr0", "out_ptr0", "xnumel", "XBLOCK"]  # noqa: RUF012 - as the real one's

    def __init__(self):
        self.launches = []

    def __getitem__(self, grid):
        return lambda *args, **kwargs: self.launches.append(SimpleNamespace(grid=grid, args=args, kwargs=kwargs))


class Told:
    """What a watch tells; counts as a recorder does."""

    def __init__(self):
        self.won, self.launches, self.lacks, self.failures = [], [], [], []

    def won_by_inductor(self, *facts):
        self.won.append(facts)
        return SimpleNamespace(launches=itertools.count(1), due=1)

    def launched(self, known, number, grid, args):
        known.due = 2 * number
        self.launches.append((number, grid, args))

    def lack(self, function, what):
        self.lacks.append((function, what))

    def fail(self, error, where):
        self.failures.append((error, where))


def compiled(autotuner, number=0):
    """Compile one config as Inductor does; return the facts of the watch."""
    end = inductor_hooks.watch(Told())
    try:
        autotuner._precompile_config(autotuner.configs[number])
    finally:
        end()
    return inductor_hooks.compiled_configs(autotuner)[-1]
