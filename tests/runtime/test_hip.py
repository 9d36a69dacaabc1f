"""Bundles for AMD's GPUs are selected, loaded and launched; HIP is a fake, in a process of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from nojit.runtime.errors import DriverError, NoMatchingVariantError
from nojit.runtime.loader import load

from tests.fakecuda import FakeCuda
from tests.fakecuda.build import build_driver, build_faketorch, build_hip
from tests.fakecuda.hip import FakeHip
from tests.support.bundles import bundle_bytes, kernel, target
from tests.support.tensors import PointerTensor

ROOT = Path(__file__).parents[2]
PARAMS = {"x_ptr": "*fp32", "n": "i32"}
PROGRAM = """
import json, os, sys
from pathlib import Path
from nojit import runtime
from nojit.runtime import _core
from nojit.runtime.errors import NojitError
from tests.fakecuda.hip import FakeHip
from tests.support.tensors import PointerTensor

fake = FakeHip(Path(os.environ["NOJIT_LIBHIP"]))
add = runtime.load(sys.argv[1]).kernel("add")


def tensor(device=0):
    return PointerTensor(0x10000, "torch.float32", f"cuda:{device}")


def tell(**facts):
    print(json.dumps(facts))


def launched():
    last = fake.last_launch()
    tell(symbol=last.symbol, device=last.device, grid=last.grid, block=last.block, shared=last.shared_bytes, ints=last.ints(),
         stream=last.stream, cooperative=last.cooperative)


def failed(call):
    try:
        call()
    except NojitError as error:
        tell(type=type(error).__name__, text=str(error))
"""


@pytest.fixture(scope="module")
def hip(tmp_path_factory: pytest.TempPathFactory) -> FakeHip:
    return FakeHip(build_hip(tmp_path_factory.mktemp("hip")))


@pytest.fixture(scope="module")
def faketorch_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_faketorch(tmp_path_factory.mktemp("faketorch")).parent


def write(tmp_path: Path, *archs: str, **more: Any) -> Path:
    """Write a bundle for each arch; return the path of the last, or of the folder if there are several."""
    for arch in archs or ("gfx942",):
        made = kernel("add", PARAMS, on=target(arch), **more)
        path = tmp_path / f"test-1.0-{arch}.nojit"
        path.write_bytes(bundle_bytes(made, on=target(arch), min_driver=6000 if arch.startswith("gfx") else 12000))
    return tmp_path if len(archs) > 1 else path


def run(program: str, bundle: Path, environment: dict[str, str]) -> list[dict[str, Any]]:
    """Run a program on the fake; return what it told. Violations and crashes fail the test."""
    text = PROGRAM + textwrap.dedent(program) + "\nassert fake.violations() == [], fake.violations()\n"
    done = subprocess.run(
        [sys.executable, "-c", text, str(bundle)], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize(("gfx", "shared"), [(942, 64 << 10), (950, 160 << 10)])
def test_a_launch_has_the_grid_the_block_of_waves_the_arguments_and_shared_memory(
    gfx: int, shared: int, hip: FakeHip, tmp_path: Path
) -> None:
    bundle = write(tmp_path, f"gfx{gfx}", launch={"shared_bytes": shared})
    (told,) = run("add[(3, 2)](tensor(), 7, stream=0)\nlaunched()", bundle, hip.environment(gfx, driver_version=7000))
    assert told == {
        "symbol": "add", "device": 0, "grid": [3, 2, 1], "block": [256, 1, 1], "shared": shared,
        "ints": [0x10000, 7, 0, 0], "stream": 0, "cooperative": False,
    }  # fmt: skip


def test_waves_of_32_make_smaller_blocks(hip: FakeHip, tmp_path: Path) -> None:
    (told,) = run("add[(1,)](tensor(), 7)\nlaunched()", write(tmp_path, "gfx1201"), hip.environment(1201))
    assert told["block"] == [128, 1, 1]


def test_each_device_gets_its_own_module_and_the_thread_keeps_its_device(hip: FakeHip, tmp_path: Path) -> None:
    program = """
        for device in (1, 0, 1):
            add[(1,)](tensor(device), device)
            tell(device=fake.last_launch().device, loads=fake.calls("cuLibraryLoadData"), current=fake.context()[1])
    """
    told = run(program, write(tmp_path), hip.environment())
    assert [each["device"] for each in told] == [1, 0, 1]
    assert [each["loads"] for each in told] == [1, 2, 2]
    assert {each["current"] for each in told} == {0}


def test_a_stream_and_a_cooperative_launch_are_hips(hip: FakeHip, tmp_path: Path) -> None:
    bundle = write(tmp_path, launch={"cooperative": True})
    program = "stream = fake.stream(0)\nadd[(1,)](tensor(), 7, stream=stream)\nlaunched()\ntell(stream=stream)"
    told, made = run(program, bundle, hip.environment())
    assert (told["cooperative"], told["stream"]) == (True, made["stream"])


def test_a_launch_is_captured(hip: FakeHip, tmp_path: Path) -> None:
    program = """
        stream = fake.stream(0)
        add[(1,)](tensor(), 7, stream=stream)
        with fake.capture(stream):
            add[(1,)](tensor(), 7, stream=stream)
            tell(status=fake.capture_status(stream), launches=fake.launch_count())
    """
    assert run(program, write(tmp_path), hip.environment()) == [{"status": 1, "launches": 2}]


def test_scratch_memory_is_hips(hip: FakeHip, tmp_path: Path) -> None:
    bundle = write(tmp_path, launch={"global_scratch_bytes": 64, "global_scratch_align": 16})
    program = """
        memory = []
        def allocate(size, align, stream):
            memory.append(size)
            return PointerTensor(0x40000, "torch.uint8", "cuda:0")
        runtime.set_allocator(allocate)
        add[(4,)](tensor(), 7)
        tell(sizes=memory, scratch=fake.last_launch().ints()[2])
    """
    assert run(program, bundle, hip.environment()) == [{"sizes": [256], "scratch": 0x40000}]


def test_the_image_of_the_devices_arch_is_selected_among_both_vendors(hip: FakeHip, tmp_path: Path) -> None:
    folder = write(tmp_path, "sm_90a", "gfx950", "gfx942")
    (told,) = run("add[(1,)](tensor(), 7)\nlaunched()", folder, hip.environment(942))
    assert told["block"] == [256, 1, 1]
    (told,) = run("tell(id=add.explain(tensor(), 7, arch='gfx950').chosen)", folder, hip.environment(942))
    assert "num_warps=4" in told["id"]


@pytest.mark.parametrize(("built", "device", "name"), [("gfx942", 950, "gfx950"), ("sm_90a", 942, "gfx942")])
def test_another_gpu_than_the_images_is_named(hip: FakeHip, tmp_path: Path, built: str, device: int, name: str) -> None:
    (told,) = run("failed(lambda: add[(1,)](tensor(), 7))", write(tmp_path, built), hip.environment(device))
    assert told["type"] == "NoMatchingVariantError"
    assert f"bundle has {built}; device is {name}: nojit build --arch {name} builds for it" in told["text"]


def test_nvidias_gpu_does_not_run_amds_bundle(fakecuda: FakeCuda, tmp_path: Path) -> None:
    with pytest.raises(NoMatchingVariantError, match="bundle has gfx942; device is sm_90: nojit build --arch sm_90"):
        load(write(tmp_path)).kernel("add")[1,](PointerTensor(0x10000, "torch.float32"), 7)
    assert fakecuda.launch_count() == 0


def test_an_image_for_another_gfx_is_refused_before_hip_sees_it(hip: FakeHip, tmp_path: Path) -> None:
    made = kernel("add", PARAMS, on=target("gfx942"))
    other = kernel("add", PARAMS, on=target("gfx950"))
    path = tmp_path / "test-1.0-gfx942.nojit"
    path.write_bytes(bundle_bytes(type(made)(made.table, other.images), on=target("gfx942"), min_driver=6000))
    program = "failed(lambda: add[(1,)](tensor(), 7))\ntell(loads=fake.calls('cuLibraryLoadData'))"
    told, seen = run(program, path, hip.environment())
    assert "expected an image for gfx942, got gfx950" in told["text"]
    assert seen == {"loads": 0}


@pytest.mark.parametrize(
    ("function", "code", "text"),
    [
        ("cuLaunchKernel", 719, "hipModuleLaunchKernel failed: a kernel broke the HIP context, and the process must be restarted, got hipErrorLaunchFailure"),
        ("cuLibraryLoadData", 209, "hipModuleLoadData failed, got hipErrorNoBinaryForGpu"),
        ("cuLibraryGetKernel", 500, "hipModuleGetFunction failed, got hipErrorNotFound"),
        ("cuLaunchKernel", 12345, "hipModuleLaunchKernel failed, got unknown error"),
    ],
)  # fmt: skip
def test_errors_have_hips_names(hip: FakeHip, tmp_path: Path, function: str, code: int, text: str) -> None:
    environment = hip.environment(fail=((function, -1, code),))
    (told,) = run("failed(lambda: add[(1,)](tensor(), 7))", write(tmp_path), environment)
    assert told["type"] == "DriverError"
    assert text in told["text"]


def test_no_device_is_hips_word(hip: FakeHip, tmp_path: Path) -> None:
    environment = hip.environment(fail=(("cuInit", -1, 100),))
    (told,) = run("failed(lambda: add[(1,)](tensor(), 7))", write(tmp_path), environment)
    assert "hipInit failed, got hipErrorNoDevice" in told["text"]


def test_a_rocm_that_is_too_old_is_named(hip: FakeHip, tmp_path: Path) -> None:
    made = kernel("add", PARAMS, on=target("gfx942"))
    path = tmp_path / "test-1.0-gfx942.nojit"
    path.write_bytes(bundle_bytes(made, on=target("gfx942"), min_driver=7000))
    (told,) = run("failed(lambda: add[(1,)](tensor(), 7))", path, hip.environment())
    assert "expected a driver for ROCm 7.0 or later, this one is for 6.4" in told["text"]
    assert "hipErrorNoBinaryForGpu" in told["text"]


def test_a_gpu_whose_name_has_a_letter_is_none_that_is_built_for(hip: FakeHip, tmp_path: Path) -> None:
    (told,) = run("failed(lambda: add[(1,)](tensor(), 7))", write(tmp_path), hip.environment(9010))
    assert "expected a GPU that nojit builds for, such as gfx942; device 0 is gfx90a:sramecc+:xnack-" in told["text"]
    assert "got hipErrorNoBinaryForGpu (209)" in told["text"]


def test_devices_are_told_by_their_archs(hip: FakeHip, tmp_path: Path) -> None:
    program = "tell(devices=[_core.device_capability(number) for number in range(_core.device_count())], version=_core.driver_version())"
    assert run(program, write(tmp_path), hip.environment(942, 1201)) == [{"devices": [942, 1201], "version": 6040}]


def test_the_missing_file_is_named(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "NOJIT_LIBCUDA"}
    environment |= {"NOJIT_LIBHIP": str(tmp_path / "none.so"), "NOJIT_LIBCUDA": str(tmp_path / "none.so")}
    program = "from nojit.runtime import _core\n_core.driver_version()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, env=environment)
    assert DriverError.__name__ in done.stderr
    assert "none.so" in done.stderr


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a folder that has the drivers of both vendors, under their own names."""
    folder = tmp_path_factory.mktemp("both")
    build_driver(folder)
    build_hip(folder)
    return folder


CHOICES = {
    "neither named nor opened": ((), "", "cuInit"),
    "HIP opened": ((), "libamdhip64.so", "hipInit"),
    "CUDA opened": ((), "libcuda.so.1", "cuInit"),
    "HIP named, CUDA opened": (("NOJIT_LIBHIP=libamdhip64.so",), "libcuda.so.1", "hipInit"),
    "CUDA named, HIP opened": (("NOJIT_LIBCUDA=libcuda.so.1",), "libamdhip64.so", "cuInit"),
    "both named": (("NOJIT_LIBCUDA=libcuda.so.1", "NOJIT_LIBHIP=libamdhip64.so"), "", "cuInit"),
    "both named, CUDA missing": (("NOJIT_LIBCUDA=/none.so", "NOJIT_LIBHIP=libamdhip64.so"), "", "hipInit"),
    "CUDA named and missing": (("NOJIT_LIBCUDA=/none.so",), "", "expected a CUDA driver of version 12.0 or later (libcuda.so.1), got /none.so"),
    "HIP named and missing": (("NOJIT_LIBHIP=/none.so",), "", "expected AMD's HIP runtime 6.0 or later (libamdhip64.so), got /none.so"),
    "CUDA named and missing, HIP opened": (("NOJIT_LIBCUDA=/none.so",), "libamdhip64.so", "expected a CUDA driver"),
}  # fmt: skip


@pytest.mark.parametrize(("named", "opened", "told"), CHOICES.values(), ids=CHOICES)
def test_the_driver_is_the_named_one_or_the_opened_one_or_nvidias(
    both: Path, named: tuple[str, ...], opened: str, told: str
) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in {"NOJIT_LIBCUDA", "NOJIT_LIBHIP"}}
    environment |= {
        "LD_LIBRARY_PATH": str(both),
        "FAKECUDA_FAIL": "cuInit:-1:100",
        **dict(each.split("=") for each in named),
    }
    program = f"import ctypes\nfrom nojit.runtime import _core\nif {opened!r}: ctypes.CDLL({opened!r})\n_core.driver_version()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, env=environment)
    assert told in done.stderr


def test_a_machine_without_a_driver_is_told_of_both(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in {"NOJIT_LIBCUDA", "NOJIT_LIBHIP"}}
    (tmp_path / "libcuda.so.1").write_text("no library")
    (tmp_path / "libamdhip64.so").write_text("no library")
    program = "from nojit.runtime import _core\n_core.driver_version()"
    environment["LD_LIBRARY_PATH"] = str(tmp_path)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, env=environment)
    wanted = "expected a CUDA driver of version 12.0 or later (libcuda.so.1), or AMD's HIP runtime 6.0 or later (libamdhip64.so)"
    assert wanted in done.stderr


@pytest.mark.parametrize(
    "asked", ["get_current_target()", "get_device_capability(1)", "utils.get_device_properties(1)"]
)
def test_the_driver_of_served_programs_refuses_amds_gpus(hip: FakeHip, tmp_path: Path, asked: str) -> None:
    pytest.importorskip("triton")
    program = f"""
        from nojit.runtime.serve.driver import Driver

        failed(lambda: Driver(lambda: None).{asked})
    """
    (told,) = run(program, write(tmp_path), hip.environment(942, 1201))
    assert "expected a GPU of NVIDIA: programs are not served on AMD's" in told["text"]
    assert "got gfx1201 - at device 1" in told["text"] or "got gfx942 - at device 0" in told["text"]


def test_doctor_shows_an_amd_machine(hip: FakeHip, tmp_path: Path) -> None:
    folder = write(tmp_path, "gfx942", "sm_90a")
    environment = hip.environment(942) | {"NOJIT_BUNDLES": str(folder)}
    command = [sys.executable, "-m", "nojit", "doctor"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    shown = " ".join(done.stdout.split())
    assert "driver for ROCm 6.4" in shown
    assert "devices gfx942" in shown
    assert "device 0, gfx942 would use" in shown


def test_a_program_in_c_launches_it_too(hip: FakeHip, tmp_path: Path) -> None:
    program = """
        from tests.support.capi import CApi

        CApi().open(Path(sys.argv[1])).kernel("add").launch(tensor(), 7, grid=(2, 1, 1))
        launched()
    """
    (told,) = run(program, write(tmp_path), hip.environment())
    assert (told["grid"], told["block"], told["ints"]) == ([2, 1, 1], [256, 1, 1], [0x10000, 7, 0, 0])


def test_memory_of_rocms_dlpack_type_is_a_gpus(hip: FakeHip, faketorch_folder: Path, tmp_path: Path) -> None:
    program = f"""
        sys.path.insert(0, {str(faketorch_folder)!r})
        import faketorch
        x = faketorch.Tensor(0x10000, "float32", device=1, device_type=10)
        faketorch.set_stream(1, 0)
        add[(1,)](x, 7)
        launched()
    """
    (told,) = run(program, write(tmp_path), hip.environment())
    assert (told["device"], told["ints"]) == (1, [0x10000, 7, 0, 0])


HIP_CONSTANTS = {
    "hipErrorNoBinaryForGpu": 209,
    "hipErrorNotSupported": 801,
    "hipErrorInvalidValue": 1,
    "hipErrorNotInitialized": 3,
    "hipErrorInvalidDevice": 101,
    "hipErrorInvalidContext": 201,
    "hipErrorIllegalAddress": 700,
    "hipErrorLaunchTimeOut": 702,
    "hipErrorContextIsDestroyed": 709,
    "hipErrorAssert": 710,
    "hipErrorLaunchFailure": 719,
    "hipDeviceAttributeMultiprocessorCount": 63,
    "HIP_POINTER_ATTRIBUTE_DEVICE_POINTER": 3,
    "HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL": 9,
    "offsetof(hipDeviceProp_tR0600, gcnArchName)": 1160,
    "sizeof(((hipDeviceProp_tR0600 *)0)->gcnArchName)": 256,
    "sizeof(hipDeviceProp_tR0600)": 1472,
}


@pytest.mark.triton
def test_hips_numbers_agree_with_its_header(tmp_path: Path) -> None:
    import triton

    checks = "".join(f"_Static_assert({name} == {value}, #x);\n" for name, value in HIP_CONSTANTS.items()).replace(
        "#x", '"differs"'
    )
    calls = (ROOT / "runtime/engine/hip/calls.c").read_text()
    names = sorted(set(re.findall(r"X\((hip\w+),", calls)))
    assert len(names) > 15
    uses = "".join(f"void *use_{name}(void) {{ return (void *){name}; }}\n" for name in names)
    source = tmp_path / "numbers.c"
    source.write_text(
        f"#define __HIP_PLATFORM_AMD__ 1\n#include <stddef.h>\n#include <hip/hip_runtime_api.h>\n{checks}{uses}"
    )
    include = Path(triton.__path__[0]) / "backends" / "amd" / "include"
    subprocess.run(["gcc", "-c", f"-I{include}", str(source), "-o", str(tmp_path / "numbers.o")], check=True)
