"""Driver version and clock of a GPU, from NVIDIA's management library (NVML); unknown without the library."""

from __future__ import annotations

import ctypes

__all__ = ["Nvml"]

_CLOCK_SM = 1


class Nvml:
    """The management library for one GPU, if it is installed.

    Args:
        uuid: the UUID of the GPU, ``GPU-...``; the library's first GPU if empty.
    """

    def __init__(self, uuid: str = "") -> None:
        self._library: ctypes.CDLL | None = None
        self._device = ctypes.c_void_p()
        try:
            library = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError:
            return
        if library.nvmlInit_v2():
            return
        place = ctypes.byref(self._device)
        missing = (
            library.nvmlDeviceGetHandleByUUID(uuid.encode(), place)
            if uuid
            else library.nvmlDeviceGetHandleByIndex_v2(0, place)
        )
        if not missing:
            self._library = library

    def driver(self) -> str:
        """Return the driver's version; empty if unknown."""
        text = ctypes.create_string_buffer(96)
        if self._library is None or self._library.nvmlSystemGetDriverVersion(text, len(text)):
            return ""
        return text.value.decode(errors="replace")

    def clock_mhz(self) -> int | None:
        """Return the present clock of the multiprocessors in MHz; None if unknown."""
        clock = ctypes.c_uint()
        if self._library is None or self._library.nvmlDeviceGetClockInfo(self._device, _CLOCK_SM, ctypes.byref(clock)):
            return None
        return clock.value
