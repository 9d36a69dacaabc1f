"""Connect the runtime's events to OpenTelemetry and NVTX. Imported on request only.

::

    telemetry.add_opentelemetry(tracer=trace.get_tracer("server"), meter=metrics.get_meter("server"))
    telemetry.add_nvtx()
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from nojit.runtime.observe import events, hooks
from nojit.runtime.observe.events import Event, Listener

__all__ = ["add_nvtx", "add_opentelemetry"]


def add_opentelemetry(*, tracer: Any = None, meter: Any = None) -> Listener:
    """Make a span of each event, and count and time events.

    A span has the name ``nojit.load``, ``nojit.plan`` and so on, and the times of its event. The meter gets a counter
    ``nojit.events`` and a histogram ``nojit.duration`` in seconds. Their attributes are ``nojit.kind`` and, if the event has them,
    ``nojit.bundle``, ``nojit.kernel`` and ``nojit.device``; spans also have ``nojit.variant`` and ``nojit.detail``.

    Args:
        tracer: an `opentelemetry.trace.Tracer`; None for no spans.
        meter: an `opentelemetry.metrics.Meter`; None for no metrics.

    Returns:
        The listener, for `nojit.runtime.observe.events.remove`.

    Raises:
        TypeError: both are None.
    """
    if tracer is None and meter is None:
        raise TypeError("expected a tracer, a meter or both, got none")
    counter = meter and meter.create_counter("nojit.events", unit="{event}", description="what the runtime did")
    histogram = meter and meter.create_histogram("nojit.duration", unit="s", description="how long that took")

    def listen(event: Event) -> None:
        attributes = _attributes(event)
        if meter is not None:
            counter.add(1, attributes)
            histogram.record(event.duration_ns / 1e9, attributes)
        if tracer is not None:
            more = {"nojit.variant": event.variant, "nojit.detail": event.detail}
            spoken = attributes | {name: value for name, value in more.items() if value}
            start = event.end_ns - event.duration_ns
            tracer.start_span(f"nojit.{event.kind}", attributes=spoken, start_time=start).end(end_time=event.end_ns)

    return events.add(listen)


def _attributes(event: Event) -> dict[str, str | int]:
    """Return the attributes with few distinct values, because a metrics backend stores a series for each combination."""
    attributes: dict[str, str | int] = {"nojit.kind": event.kind}
    if event.bundle:
        attributes["nojit.bundle"] = event.bundle
    if event.kernel:
        attributes["nojit.kernel"] = event.kernel
    if event.device >= 0:
        attributes["nojit.device"] = event.device
    return attributes


def add_nvtx() -> hooks.Handle:
    """Open an NVTX range with the kernel's name around every launch, for Nsight Systems.

    Uses the package `nvtx` if it is installed, else torch if the program has imported it.

    Returns:
        The handle, for `nojit.runtime.observe.hooks.remove`.

    Raises:
        ImportError: neither is available.
    """
    return hooks.add_ranges(*_ranges())


def _ranges() -> tuple[Callable[[str], object], Callable[[], object]]:
    try:
        import nvtx
    except ImportError:
        torch = sys.modules.get("torch")
        if torch is None:
            raise ImportError(
                "expected the package nvtx, or torch to be imported, got neither: pip install nvtx"
            ) from None
        return torch.cuda.nvtx.range_push, torch.cuda.nvtx.range_pop
    return nvtx.push_range, nvtx.pop_range
