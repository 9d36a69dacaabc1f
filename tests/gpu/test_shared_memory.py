"""What the driver takes of shared memory, static and dynamic together; the fake driver must answer the same."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable, Iterator
from ctypes import byref, c_int, c_size_t, c_uint, c_void_p
from pathlib import Path

import pytest

from tests.fakecuda import FakeCuda, build_driver

MAX_DYNAMIC = 8
SHARED_OPTIN = 97  # CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
USUAL = 48 << 10

# the memory is written and read, so that ptxas keeps it
PTX = """
.version {version}
.target {arch}
.address_size 64
.visible .entry k() .reqntid 32
{{
 .reg .b32 %r<3>;
 {declaration}
 mov.u32 %r1, {buffer};
 st.volatile.shared.u32 [%r1], %r1;
 ld.volatile.shared.u32 %r2, [%r1];
 ret;
}}
"""
DYNAMIC = ".extern .shared .align 16 .b8 dynamic[];\n"

Ask = Callable[[int, int | None], tuple[int, ...]]
"""The codes that a driver gives of a launch with so many dynamic bytes, once so many were asked for."""


def machine_code(folder: Path, static_bytes: int, capability: tuple[int, int]) -> bytes:
    from triton import knobs

    major, minor = capability
    arch = f"sm_{major}{minor}" + ("a" if major >= 9 else "")
    tool = knobs.nvidia.ptxas_blackwell if major >= 10 else knobs.nvidia.ptxas
    body = (
        PTX.format(
            version="8.7" if major >= 10 else "8.0",
            arch=arch,
            declaration=f".shared .align 16 .b8 fixed[{static_bytes}];" if static_bytes else "",
            buffer="fixed" if static_bytes else "dynamic",
        )
    )  # fmt: skip
    if not static_bytes:
        body = body.replace(".visible", DYNAMIC + ".visible")
    source, image = folder / "k.ptx", folder / "k.cubin"
    source.write_text(body, encoding="ascii")
    subprocess.run([tool.path, f"-arch={arch}", str(source), "-o", str(image)], check=True, capture_output=True)
    return image.read_bytes()


def ask(library: ctypes.CDLL, image: bytes) -> Ask:
    def answers(dynamic_bytes: int, asked: int | None) -> tuple[int, ...]:
        loaded, kernel = c_void_p(), c_void_p()
        codes = [library.cuLibraryLoadData(byref(loaded), image, None, None, 0, None, None, 0)]
        codes += [library.cuLibraryGetKernel(byref(kernel), loaded, b"k")]
        if asked is not None:
            codes += [library.cuKernelSetAttribute(MAX_DYNAMIC, asked, kernel, 0)]
        numbers = map(c_uint, (1, 1, 1, 32, 1, 1, dynamic_bytes))
        codes += [library.cuLaunchKernel(kernel, *numbers, None, (c_void_p * 1)(), None)]
        return (*codes, library.cuCtxSynchronize())

    return answers


@pytest.fixture(scope="module")
def drivers(device, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ctypes.CDLL, FakeCuda]]:
    """Make the real driver, with the device's context current, and a fake that has the same device."""
    import torch

    torch.zeros(1, device=device)
    fake = FakeCuda(build_driver(tmp_path_factory.mktemp("fakecuda")))
    major, minor = torch.cuda.get_device_capability(device)
    fake.set_devices(10 * major + minor)
    fake.make_current(0)
    yield ctypes.CDLL("libcuda.so.1"), fake
    fake.reset()


@pytest.mark.parametrize("static_bytes", [0, 16, 2048])
def test_the_fake_driver_answers_as_the_real_one(drivers, device, tmp_path, static_bytes: int) -> None:
    import torch

    real, fake = drivers
    image = machine_code(tmp_path, static_bytes, torch.cuda.get_device_capability(device))
    most = c_int()
    assert real.cuDeviceGetAttribute(byref(most), SHARED_OPTIN, 0) == 0
    largest = most.value - static_bytes
    dynamic = [1024, USUAL - static_bytes, USUAL - static_bytes + 16, USUAL, USUAL + 16, largest, largest + 16]
    asked = [None, USUAL, largest, largest + 16, most.value]
    of_real, of_fake = ask(real, image), ask(fake.library, image)
    for ask_for in asked:
        for each in dynamic:
            assert of_real(each, ask_for) == of_fake(each, ask_for), (each, ask_for)
    fake.violations()
    free, total = c_size_t(), c_size_t()
    assert real.cuMemGetInfo_v2(byref(free), byref(total)) == 0, "no refused launch broke the context"
