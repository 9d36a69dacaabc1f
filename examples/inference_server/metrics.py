"""Metrics of the server, in the text format of Prometheus."""

from __future__ import annotations

from collections.abc import Iterator

from engine import Engine
from nojit import runtime
from nojit.runtime import hooks

EVENTS = (
    ("open", "opened", "Bundles that were opened"),
    ("load", "loaded", "Images that were loaded"),
    ("plan", "planned", "Variants that were made ready"),
    ("miss", "missed", "Calls that no variant serves"),
)


class Launches:
    """Counter of launches, from its creation on; counts only nojit's launches."""

    def __init__(self) -> None:
        self.count = 0
        self._handle = hooks.add(self._add)

    def close(self) -> None:
        """Stop counting."""
        hooks.remove(self._handle)

    def _add(self, _: hooks.LaunchInfo) -> None:
        # only the engine's thread launches
        self.count += 1


def exposition(engine: Engine, launches: Launches | None) -> str:
    """Return all metrics as text; launches only if they are counted."""
    return "".join(f"{line}\n" for line in _lines(engine, launches))


def _lines(engine: Engine, launches: Launches | None) -> Iterator[str]:
    counted = runtime.counters()
    for kind, name, text in EVENTS:
        yield from _metric(f"nojit_{name}_total", "counter", text, getattr(counted, name))
        seconds = getattr(counted, f"{kind}_ns") / 1e9
        yield from _metric(f"nojit_{kind}_seconds_total", "counter", f"{text}: the time it took", seconds)
    if launches is not None:
        yield from _metric("nojit_launches_total", "counter", "Kernels that were launched", launches.count)
    yield from _metric("nojit_healthy", "gauge", "Whether the device can be used", int(engine.device_usable))
    yield from _metric("server_tokens_total", "counter", "Tokens that were made", engine.counts["tokens"])
    yield from _metric("server_waiting", "gauge", "Requests that wait for a slot", engine.waiting)
    yield from _metric("server_running", "gauge", "Requests that have one", engine.running)
    yield "# HELP server_requests_total Requests that have ended, by how"
    yield "# TYPE server_requests_total counter"
    for how in ("done", "cancelled", "failed", "refused"):
        yield f'server_requests_total{{how="{how}"}} {engine.counts[how]}'


def _metric(name: str, kind: str, text: str, value: float) -> Iterator[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"
    yield f"{name} {value}"
