"""Kernels of a recording's bundle: calls have the meaning that they have for Triton's JIT."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter_ns
from typing import Any

from nojit.runtime import _core
from nojit.runtime.base.caller_warning import warn_caller
from nojit.runtime.base.launch_options import BUILT_WITH, is_as_built
from nojit.runtime.base.wording import shown
from nojit.runtime.call.bound_call import Facts
from nojit.runtime.errors import ArgumentError, NoMatchingVariantError
from nojit.runtime.first_call.arch_bundle import ArchBundle
from nojit.runtime.kernel import Kernel
from nojit.runtime.observe.events import emit
from nojit.runtime.recording.drift import drift_of
from nojit.runtime.recording.origins import Origin
from nojit.runtime.recording.specialization import functions_among
from nojit.runtime.serve.compiled_kernel import Compiled
from nojit.runtime.values import Value

__all__ = ["ServedKernel", "warn_of_capture"]


class ServedKernel(Kernel):
    """A kernel that stands for a function of Triton. A call that it cannot serve raises `NoMatchingVariantError`; it compiles nothing.

    Args:
        name: name in the bundle.
        bundles: the bundle files that hold the kernel.
        origin: the function that it was built from.
        prepare: called once with each device, before the first launch there.
    """

    def __init__(
        self, name: str, bundles: Sequence[ArchBundle], origin: Origin, prepare: Callable[[int], None]
    ) -> None:
        super().__init__(name, bundles)
        self._origin = origin
        self._prepare_device = prepare
        # by id, with the function itself, so that no other gets its id
        self._verified: dict[int, Any] = {}

    @property
    def bundle(self) -> str:
        """Ids of the bundles, separated by commas."""
        return ",".join(bundle.images.file.id for bundle in self._bundles.bundles)

    def missed(self, what: str, *, got: str = "", device: int = -1) -> NoMatchingVariantError:
        """Count a call that nothing serves, and return its error."""
        emit("miss", perf_counter_ns(), bundle=self.bundle, kernel=self.name, device=device, detail=what)
        return NoMatchingVariantError(what, got=got, where=f"kernel {self.name}")

    def options_of(self, config: Mapping[str, Any]) -> dict[str, Value]:
        """Return the options that select the variants of a config: its own, else the one that every recorded call passed."""
        options: dict[str, Value] = {}
        for name in self._origin.options:
            built = [value for axis in self._bundles.first_table.axes if axis.name == name for value in axis.values]
            if name in config:
                options[name] = config[name]
            elif len(built) == 1:
                options[name] = built[0]
        return options

    def launch_bound(self, grid: Any, values: Mapping[str, Any]) -> Any:
        """Launch with the values of all params by name."""
        rest = next((place for place, param in enumerate(self._params) if param.is_rest), None)
        named = dict(values)
        if rest is None:
            return self[grid](**named)
        args = [named.pop(param.name) for param in self._params[:rest]]
        return self[grid](*args, *named.pop(self._params[rest].name, ()), **named)

    def _prepare(self, device: int) -> _core.Spec:
        self._prepare_device(device)
        return super()._prepare(device)

    def _plan_of(self, device: int, row: int) -> _core.Plan:
        if (device, row) not in self._plans:
            bundle, table = self._bundles.of(device)
            if not bundle.images.is_loaded(table, row, device):
                warn_of_capture(f"kernel {self.name} is")
        plan = super()._plan_of(device, row)
        if plan.result is None:
            plan.set_result(Compiled(self, plan, self._bundles.table(plan.payload[0])))
        return plan

    def _best(self, device: int, facts: Facts) -> int:
        try:
            return super()._best(device, facts)
        except ArgumentError as error:
            # a type that no recorded call passed: the JIT would compile for it
            raise NoMatchingVariantError(error.what, got=error.got, where=error.where) from None
        except NoMatchingVariantError as error:
            if not error.reasons:
                raise
            # its text names lines of a manifest, which a recording has not
            raise NoMatchingVariantError(error.reasons[0][1], where=error.where, reasons=error.reasons) from None

    def _missed(self, *_: Any) -> bool:
        """Raise the error: the server's own policy decides on the call."""
        return False

    def _check_option(self, name: str, value: object) -> None:
        if name in BUILT_WITH and is_as_built(name, value):
            return
        raise self.missed(f"no recorded call passed the option {name}", got=f"{name}={shown(value)}")

    def _constexpr_value(self, value: Any, name: str) -> Value:
        self._verify(value)
        return super()._constexpr_value(value, name)

    def _constexpr_key(self, value: Any) -> tuple[int, int]:
        self._verify(value)
        return super()._constexpr_key(value)

    def _verify(self, value: Any) -> None:
        """Require that functions among a constexpr are those that were recorded.

        Raises:
            NoMatchingVariantError: the source of one differs.
        """
        for name, function in functions_among({"": value}).items():
            if id(function) in self._verified:
                continue
            known = self._origin.functions.get(name)
            drift = drift_of(function, known) if known is not None else ""
            if drift:
                raise self.missed(f"the constexpr {name} is another function than the recorded one: {drift}")
            self._verified[id(function)] = function


def warn_of_capture(what: str) -> None:
    """Warn of variants that are loaded while a CUDA graph is captured.

    Args:
        what: what is loaded, with its verb: "kernel add is".
    """
    from sys import modules

    torch = modules.get("torch")
    try:
        capturing = torch is not None and torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()
    except (AttributeError, RuntimeError):
        return
    if capturing:
        advice = "before the capture call preload(), or launch one there with preload=True or NOJIT_SERVE_PRELOAD=1"
        warn_caller(f"{what} loaded while a CUDA graph is captured: {advice}", RuntimeWarning)
