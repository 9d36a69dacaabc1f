"""Launchers of other projects, on the same kernels. Each is imported only when it is measured."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from nojit.aot.bench.case_setup import Stage, Timer, Unavailable, timed
from nojit.aot.bench.cases import BLOCK, NUM_WARPS
from nojit.aot.bench.contenders import Contender

__all__ = ["RIVALS"]

_KERNELS = "nojit.aot.bench.kernels"
_STATIC_LAUNCHERS = ("static_triton_launcher", "static_cuda_launcher")


def _triton(stage: Stage) -> Timer:
    jitted = getattr(import_module(_KERNELS), stage.case.kernel)
    return timed(f"kernel[grid]({stage.case.as_triton()})", stage.names | {"kernel": jitted})


def _triton_autotuned(stage: Stage) -> Timer:
    module = import_module(_KERNELS)
    constexprs = {"BLOCK": BLOCK} if stage.case.inputs else {}
    configs = [module.triton.Config(constexprs, num_warps=warps) for warps in (NUM_WARPS, NUM_WARPS // 2)]
    tuned = module.triton.autotune(configs=configs, key=["n"] if stage.case.inputs else [])
    names = stage.names | {"kernel": tuned(getattr(module, stage.case.kernel))}
    return timed(f"kernel[grid]({stage.case.given()})", names)


def _inductor(stage: Stage) -> Timer:
    torch: Any = import_module("torch")
    jitted = getattr(import_module(_KERNELS), stage.case.kernel)
    config = {"BLOCK": BLOCK} if stage.case.inputs else {}
    compiled = jitted[1,](*stage.values.values(), num_warps=NUM_WARPS, **config)
    path = stage.folder / f"inductor_{stage.case.arguments}.cubin"
    path.write_bytes(compiled.asm["cubin"])
    # Inductor sets this attribute before it passes the kernel to its launcher
    compiled._cubin_path = str(path)  # noqa: SLF001
    launcher = _static_launcher()(compiled)
    launcher.load_kernel(stage.device)
    names = stage.names | {"run": launcher.run, "stream": torch._C._cuda_getCurrentRawStream}  # noqa: SLF001
    return timed(f"run(1, 1, 1, stream({stage.device}), {stage.case.positional()})", names)


def _static_launcher() -> Any:
    for name in _STATIC_LAUNCHERS:
        try:
            module = import_module(f"torch._inductor.runtime.{name}")
        except ModuleNotFoundError:
            continue
        return module.StaticallyLaunchedCudaKernel
    raise Unavailable("this torch has no static launcher")


def _cuda_core(stage: Stage) -> Timer:
    import ctypes

    core = _cuda_core_module()
    image = stage.image()
    device = core.Device(stage.device)
    device.set_current()
    kernel = core.ObjectCode.from_cubin(image.code).get_kernel(image.launch.symbol)
    config = core.LaunchConfig(grid=(1,), block=(image.threads,), shmem_size=image.launch.shared_bytes)
    stream = core.Stream.from_handle(stage.stream) if stage.stream else device.default_stream
    # cuda.core takes a Python int for an address
    values = [ctypes.c_int32(value) if kind == "i32" else value for kind, value in stage.params(image.launch)]
    names = {f"p{place}": value for place, value in enumerate(values)}
    whole = names | {"launch": core.launch, "stream": stream, "config": config, "kernel": kernel}
    return timed(f"launch(stream, config, kernel, {', '.join(names)})", whole)


def _cuda_core_module() -> Any:
    core = import_module("cuda.core")
    return core if hasattr(core, "launch") else import_module("cuda.core.experimental")


def _cupy(stage: Stage) -> Timer:
    cupy: Any = import_module("cupy")
    if stage.stream:
        raise Unavailable("CuPy launches on its own current stream, which differs from torch's here")
    image = stage.image()
    kernel = cupy.RawModule(path=str(_write(stage, image.code))).get_function(image.launch.symbol)
    arrays = {address: cupy.from_dlpack(stage.values[name]) for name, address in stage.addresses.items()}
    # CuPy takes a Python int as 8 bytes, which serves as the null pointer
    values = [
        cupy.int32(value) if kind == "i32" else arrays.get(value, 0) for kind, value in stage.params(image.launch)
    ]
    names = {f"p{place}": value for place, value in enumerate(values)}
    call = f"kernel((1,), ({image.threads},), ({', '.join(names)},), shared_mem={image.launch.shared_bytes})"
    return timed(call, names | {"kernel": kernel})


def _write(stage: Stage, code: bytes) -> Path:
    path = stage.folder / f"{stage.case.kernel}.cubin"
    path.write_bytes(code)
    return path


def _torch_op(stage: Stage) -> Timer:
    if len(stage.case.inputs) != 2:
        raise Unavailable("torch.add is measured with 4 arguments only")
    torch: Any = import_module("torch")
    return timed("add(x_ptr, y_ptr, out=out_ptr)", stage.names | {"add": torch.add})


RIVALS = (
    Contender("triton", "Triton's JIT, fn[grid](...)", _triton),
    Contender("triton-autotuned", "Triton's JIT behind triton.autotune", _triton_autotuned),
    Contender("inductor", "Inductor's static launcher", _inductor),
    Contender("cuda.core", "cuda.core.launch, given addresses", _cuda_core),
    Contender("cupy", "CuPy RawKernel, given CuPy arrays", _cupy),
    Contender("torch", "torch.add(x, y, out=out)", _torch_op),
)
