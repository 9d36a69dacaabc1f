"""Log of a run: write its results into the database, and find what earlier runs measured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from nojit.aot.tune.measure.events import Fault, Listed, Measured, Opened
from nojit.aot.tune.measure.timing import Timing
from nojit.aot.tune.store.database import Database, now
from nojit.aot.tune.store.records import (
    Config,
    Device,
    KernelFacts,
    Measurement,
    Problem,
    Pruned,
    Run,
    Status,
    identity_of,
)

__all__ = ["Log"]

# identity of a problem: kernel, use, name, dtype
_Name = tuple[str, str, str, str]


class Log:
    """The results of one run and of earlier runs of the same bundle on the same kind of device.

    Args:
        database: the database to write to.
        device: the device of the run.
        run: this run; its `device` is replaced by the number of `device`.
        pruned: label and reason of each config that the build left out, by kernel.
    """

    def __init__(
        self, database: Database, device: Device, run: Run, pruned: Mapping[str, Sequence[tuple[str, str]]]
    ) -> None:
        self._database = database
        self._pruned = dict(pruned)
        self._rungs: dict[_Name, int] = {}
        self._faults: dict[_Name, set[str]] = {}
        self._read(device, run.bundle_digest)
        with database.transaction():
            number = database.add_device(device)
            facts = {name: getattr(run, name) for name in run.__slots__} | {"device": number}
            self._run = database.start_run(Run(**facts))
        self._problem = 0
        self._configs: tuple[tuple[int, ...], ...] = ()
        self._opened: Opened | None = None

    def _read(self, device: Device, digest: str) -> None:
        """Read the results of earlier runs of this bundle on this kind of device."""
        alike = {number for number, other in self._database.devices().items() if other.kind() == device.kind()}
        runs = {
            number
            for number, run in self._database.runs().items()
            if run.bundle_digest == digest and run.device in alike
        }
        kernels, problems = self._database.kernels(), self._database.problems()
        configs = self._database.configs()
        for one in self._database.pruned():
            if one.run in runs:
                self._pruned.pop(kernels[one.kernel].name, None)
        for item in self._database.measurements():
            if item.run not in runs:
                continue
            problem, config = problems[item.problem], configs[item.config]
            name = (kernels[problem.kernel].name, problem.use, problem.name, problem.dtype)
            if item.status == "ok":
                self._rungs[name] = max(item.rung, self._rungs.get(name, 0))
            else:
                self._faults.setdefault(name, set()).add(identity_of(config.settings))

    def weigh(self, problems: Iterable[Listed]) -> None:
        """Store the current weights of problems that the database has."""
        with self._database.transaction():
            for one in problems:
                self._database.weigh(*_name(one), weight=one.weight)

    def knows(self, listed: Listed, rung: int) -> bool:
        """Return whether a problem was measured up to a rung.

        `listed`: the problem.
        """
        return self._rungs.get(_name(listed), -1) >= rung

    def faults(self, listed: Listed) -> set[str]:
        """Return the identities of candidates that were wrong or failed.

        `listed`: the problem.
        """
        return self._faults.get(_name(listed), set())

    def open(self, listed: Listed, opened: Opened) -> None:
        """Store a problem and its candidates; `measured` and `fault` then refer to this problem.

        `listed`: the problem; `opened`: event of the worker that has prepared the problem.
        """
        with self._database.transaction():
            kernel = self._database.add_kernel(KernelFacts(listed.kernel, opened.key_names, {}, opened.roles))
            self._problem = self._database.add_problem(
                Problem(
                    kernel=kernel,
                    name=listed.name,
                    use=listed.use,
                    shape_class=listed.shape_class,
                    dtype=listed.dtype,
                    case=opened.case,
                    key=opened.key,
                    sizes=listed.sizes,
                    moved_bytes=opened.moved_bytes,
                    flops=opened.flops,
                    weight=listed.weight,
                )
            )
            self._configs = tuple(
                tuple(self._database.add_config(Config(kernel, one.settings, rule)) for rule in one.rules)
                for one in opened.candidates
            )
            # once per bundle: a resumed run adds none
            left_out = self._pruned.pop(listed.kernel, ())
            self._database.record_pruned(Pruned(self._run, kernel, label, reason) for label, reason in left_out)
        self._opened = opened

    def measured(self, event: Measured) -> None:
        """Store the timings of a rung."""
        self._database.record(
            one
            for candidate, timing in event.timings.items()
            for one in self._measurements(candidate, "ok", event.rung, timing=timing, clock_mhz=event.clock_mhz)
        )

    def fault(self, fault: Fault) -> None:
        """Store that a candidate was wrong or failed."""
        self._database.record(self._measurements(fault.candidate, fault.status, 0, detail=fault.detail))

    def _measurements(
        self,
        candidate: int,
        status: Status,
        rung: int,
        *,
        timing: Timing | None = None,
        clock_mhz: int | None = None,
        detail: str = "",
    ) -> Iterator[Measurement]:
        """Yield a measurement for each config of a candidate."""
        taken = now()
        for config in self._configs[candidate]:
            yield Measurement(
                run=self._run,
                problem=self._problem,
                config=config,
                image=self._opened.candidates[candidate].image if self._opened else "",
                status=status,
                rung=rung,
                samples=timing.samples if timing else 0,
                median_us=timing.median_us if timing else None,
                noise=timing.noise if timing else None,
                best_us=timing.best_us if timing else None,
                clock_mhz=clock_mhz,
                taken=taken,
                detail=detail,
            )

    def end(self) -> None:
        """Store the end of a successful run."""
        self._database.end_run(self._run)


def _name(listed: Listed) -> _Name:
    return listed.kernel, listed.use, listed.name, listed.dtype
