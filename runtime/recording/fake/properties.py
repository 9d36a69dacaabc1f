"""Properties of a common GPU of each arch, in the formats of Triton and torch. Pure."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from nojit.runtime.base.gpu_limits import (
    DEFAULT_SHARED_BYTES,
    REGISTERS_MAX,
    THREADS_MAX,
    resident_threads_max,
    shared_bytes_max,
)
from nojit.runtime.target import arch_number, is_gfx, warp_threads

__all__ = ["Common", "capability_of", "common_of", "driver_properties", "torch_properties"]

_MIB, _GIB = 1 << 20, 1 << 30


class Common(NamedTuple):
    """Properties of a common GPU of an arch, from the vendor's data sheets."""

    name: str
    multiprocessors: int
    memory_gib: int
    l2_mib: int
    clock_mhz: int
    memory_mhz: int
    bus_bits: int
    integrated: bool = False

    @property
    def memory_bytes(self) -> int:
        """The GPU's memory."""
        return self.memory_gib * _GIB


_COMMON: Final = {
    75: Common("Tesla T4", 40, 16, 4, 1590, 5001, 256),
    80: Common("NVIDIA A100-SXM4-80GB", 108, 80, 40, 1410, 1593, 5120),
    86: Common("NVIDIA A10", 72, 24, 6, 1695, 6251, 384),
    87: Common("Orin", 16, 64, 4, 1300, 3200, 256, integrated=True),
    89: Common("NVIDIA L40S", 142, 48, 96, 2520, 9001, 384),
    90: Common("NVIDIA H100 80GB HBM3", 132, 80, 50, 1980, 2619, 5120),
    100: Common("NVIDIA B200", 148, 180, 126, 1965, 3996, 8192),
    101: Common("NVIDIA Thor", 20, 128, 32, 1575, 4266, 256, integrated=True),
    103: Common("NVIDIA B300", 148, 270, 126, 1965, 3996, 8192),
    110: Common("NVIDIA Thor", 20, 128, 32, 1575, 4266, 256, integrated=True),
    120: Common("NVIDIA RTX PRO 6000 Blackwell Server Edition", 188, 96, 128, 2430, 14001, 512),
    121: Common("NVIDIA GB10", 48, 120, 24, 2418, 4266, 256, integrated=True),
    942: Common("AMD Instinct MI300X", 304, 192, 4, 2100, 1300, 8192),
    950: Common("AMD Instinct MI355X", 256, 288, 4, 2400, 2000, 8192),
    1201: Common("AMD Radeon RX 9070 XT", 32, 16, 8, 2970, 1258, 256),
}


def common_of(arch: str) -> Common:
    """Return the properties of a common GPU of an arch, or of the nearest older arch in this module's table."""
    number = arch_number(arch)
    return _COMMON[max((known for known in _COMMON if known <= number), default=min(_COMMON))]


def capability_of(arch: str) -> tuple[int, int]:
    """Return an arch's compute capability, (9, 0); of AMD's the first two parts of the name, (9, 4) for gfx942."""
    number = arch_number(arch)
    return divmod(number // 10, 10) if is_gfx(number) else divmod(number, 10)


def _shared_bytes(arch: str) -> int:
    # 99 KiB: the least of every known arch from 8.0 on
    return shared_bytes_max(arch) or 99 * 1024


def driver_properties(arch: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a GPU's properties in the format of Triton's driver.

    Returns the properties that are the same for every GPU of the arch, and those of a common GPU of the arch.
    """
    common = common_of(arch)
    return {
        "max_shared_mem": _shared_bytes(arch),
        "max_num_regs": REGISTERS_MAX,
        "warpSize": warp_threads(arch_number(arch)),
    }, {
        "multiprocessor_count": common.multiprocessors,
        "sm_clock_rate": common.clock_mhz * 1000,
        "mem_clock_rate": common.memory_mhz * 1000,
        "mem_bus_width": common.bus_bits,
    }


def torch_properties(arch: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a GPU's properties in torch's format.

    Returns the properties that are the same for every GPU of the arch, and those of a common GPU of the arch.
    """
    common, (major, minor), shared = common_of(arch), capability_of(arch), _shared_bytes(arch)
    gfx = is_gfx(arch_number(arch))
    return {
        "major": major,
        "minor": minor,
        "warp_size": warp_threads(arch_number(arch)),
        "regs_per_multiprocessor": REGISTERS_MAX,
        "max_threads_per_block": THREADS_MAX,
        "max_threads_per_multi_processor": resident_threads_max(arch),
        "shared_memory_per_block": shared if gfx else DEFAULT_SHARED_BYTES,
        "shared_memory_per_block_optin": shared,
        # from 8.0 on, the system reserves 1 KiB for each block
        "shared_memory_per_multiprocessor": shared + (1024 if major > 7 and not gfx else 0),
    }, {
        "name": common.name,
        "gcnArchName": arch if gfx else common.name,
        "multi_processor_count": common.multiprocessors,
        "total_memory": common.memory_bytes,
        "L2_cache_size": common.l2_mib * _MIB,
        "clock_rate": common.clock_mhz * 1000,
        "memory_clock_rate": common.memory_mhz * 1000,
        "memory_bus_width": common.bus_bits,
        "is_integrated": int(common.integrated),
        "is_multi_gpu_board": 0,
    }
