"""Serve the kernels that torch.compile generates: Inductor's autotuners launch from a bundle and compile nothing.

`install` replaces ``CachingAutotuner.precompile``. For a recorded kernel, the autotuner gets the launcher of the recorded config. The
graph itself comes from torch's own cache, which this module does not write to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from nojit.runtime.base.launch_options import CONFIG_OPTIONS
from nojit.runtime.recording.forced_settings import SEEN, force_settings
from nojit.runtime.recording.generated_kernels import key_of
from nojit.runtime.recording.winner_spelling import config_by_name
from nojit.runtime.values import decode_value

__all__ = ["Generated", "Server", "install"]


class Generated(NamedTuple):
    """A recorded kernel of torch.compile, ready to launch."""

    kernel: Any
    """The bundle's `Kernel`."""
    config: Mapping[str, Any]
    """The recorded constexprs and options by name."""
    options: Mapping[str, Any]
    """Compiler options that the recorded compile had, by name: they select the variant."""


class Server(Protocol):
    """The serving package's part in kernels of torch.compile."""

    def generated(self, function: Any, key: str) -> Generated | None:
        """Return the recorded kernel for a generated function and the key of its autotuner.

        None if the policy lets Inductor compile it.

        Raises:
            NoMatchingVariantError: the policy is ``error``, and nothing was recorded for it.
        """


def install(server: Server) -> Callable[[], None]:
    """Serve the kernels of torch.compile from now on; return a function that ends it.

    A caller that replaced the same functions of torch later keeps its own: these pass calls on once they have ended.

    Args:
        server: finds recorded kernels.
    """
    import torch._inductor.config as settings  # only programs that compile have it
    from torch._inductor.runtime import triton_helpers, triton_heuristics

    tuner = triton_heuristics.CachingAutotuner
    precompile, to_gpu = tuner.precompile, triton_helpers.set_driver_to_gpu
    serving = True

    def precompiling(self: Any, *args: Any, **kwargs: Any) -> None:
        if not serving or self.launchers or not _serves(self):
            precompile(self, *args, **kwargs)
            return
        found = server.generated(self.fn, key_of(self))
        if found is None:
            precompile(self, *args, **kwargs)
            return
        with self.lock:
            config = _config_in(self, found.config)
            self.launchers = [_launcher(triton_heuristics, self, config, found)]
            self.configs = None

    def setting_driver() -> Any:
        # generated modules ask for Triton's own driver, which compiles C; the serving package has set another one
        return None if serving else to_gpu()

    tuner.precompile, triton_helpers.set_driver_to_gpu = precompiling, setting_driver
    # a worker process would compile; a bundle in the graph cache would be written to Triton's cache at each hit
    restore = force_settings(settings, SEEN)

    def end() -> None:
        nonlocal serving
        serving = False
        if tuner.precompile is precompiling:
            tuner.precompile = precompile
        if triton_helpers.set_driver_to_gpu is setting_driver:
            triton_helpers.set_driver_to_gpu = to_gpu
        restore()

    return end


def _serves(autotuner: Any) -> bool:
    return bool(autotuner.device_props.type == "cuda")


def _config_in(autotuner: Any, recorded: Mapping[str, Any]) -> Any:
    """Return the recorded config as Inductor's object: one of the autotuner's, or a new one that tuning found."""
    configs = autotuner.configs or ()
    for config in configs:
        if config_by_name(config) == recorded:
            return config
    kind = type(configs[0]) if configs else _config_class()
    values = {name: decode_value(value, "config") for name, value in recorded.items()}
    options = {name: values.pop(name) for name in CONFIG_OPTIONS if name in values}
    return kind(values, **options)


def _config_class() -> Any:
    from triton import Config

    return Config


def _launcher(heuristics: Any, autotuner: Any, config: Any, found: Generated) -> Any:
    """Return a function ``launcher(*args, stream)`` that computes the grid as Inductor does and launches from the bundle."""
    function = autotuner.fn
    meta = autotuner.triton_meta
    constants = {**meta.get("constants", {}), **config.kwargs}
    compile_meta = {**meta, "constants": constants}
    result = heuristics.CompileResult(None, config, compile_meta, autotuner.inductor_meta)
    _, arguments, _ = result._get_arg_lists(function.arg_names, heuristics.get_constexprs(function))  # noqa: SLF001 - Inductor's order
    signature = meta["signature"]
    passed = [name for name in function.arg_names if signature.get(name, "constexpr") != "constexpr"]
    fixed = {name: constants[name] for name in function.arg_names if name not in passed and name in constants}
    scope = {"runner": _runner(found.kernel, passed, {**fixed, **found.options})}
    launcher = result._gen_launcher_code(  # noqa: SLF001 - as above
        scope, arguments, ["grid_0", "grid_1", "grid_2", "stream", *passed]
    )
    launcher.config = config
    # nothing is tuned further
    config.found_by_coordesc = config.found_by_combo_autotune = True
    # what torch's tuning and profiling read of a compiled kernel
    launcher.n_regs, launcher.n_spills, launcher.shared = None, None, None
    launcher.cache_hash, launcher.store_cubin = found.kernel.name, False
    return launcher


def _runner(kernel: Any, passed: list[str], fixed: Mapping[str, Any]) -> Callable[..., None]:
    names = kernel.arg_names
    if names[: len(passed)] == passed:
        return lambda x, y, z, stream, *args: kernel[x, y, z](*args, stream=stream, **fixed)
    return lambda x, y, z, stream, *args: kernel[x, y, z](
        **dict(zip(passed, args, strict=True)), stream=stream, **fixed
    )
