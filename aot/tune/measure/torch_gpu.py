"""The GPU for measurements, through torch. No other module of the tuner imports torch."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Any, NoReturn

import torch
from nojit import runtime
from nojit.aot.tune.measure.child_main import Setup
from nojit.aot.tune.measure.events import Candidate, Hello, Opened
from nojit.aot.tune.measure.measured_gpu import ContextLost, Unready
from nojit.aot.tune.measure.nvml import Nvml
from nojit.aot.tune.measure.problem_lookup import FoundProblem, find_problems, of_kernels
from nojit.aot.tune.store.records import Device, Status, identity_of
from nojit.runtime.errors import DriverError, NojitError, NoMatchingVariantError
from nojit.runtime.loader import Bundle
from nojit.runtime.table.table import KernelTable
from nojit.runtime.target import by_arch, is_arch, parse_image_arch, spell_arch

__all__ = ["TorchGpu", "candidates_of", "check_fit", "open_gpu"]

_FLUSHES = 20
# compare this many elements at once, to bound the memory of a comparison
_COMPARED = 1 << 27


def open_gpu(setup: Setup) -> TorchGpu:
    """Open the current CUDA device and the bundle of a worker.

    `setup`: the bundle and the problems, from the process that started the worker.

    Raises:
        NojitError: there is no GPU, no image of the bundle runs on it, or the problems were not found.
    """
    if not torch.cuda.is_available():
        raise NojitError(
            "expected a CUDA device that torch can use: install a torch with CUDA, and check that nvidia-smi lists a GPU",
            got="none",
        )
    return TorchGpu(setup)


def check_fit(bundle: Bundle, capability: int, where: str) -> None:
    """Check that a bundle has images for the device; otherwise every config would fail with the same error.

    Args:
        bundle: the bundle to measure.
        capability: the device's compute capability: 90 for 9.0.
        where: the bundle's path, for the error.

    Raises:
        NojitError: no image runs on the device.
    """
    archs = [file.index.target.image_arch for file in bundle.files]
    if not any(parse_image_arch(arch).runs_on(capability) for arch in archs):
        got = f"{', '.join(sorted(archs, key=by_arch))}; build one with nojit build --tuning --arch {spell_arch(capability)}"
        raise NojitError(f"expected a bundle for {spell_arch(capability)}", got=got, where=where)


class TorchGpu:
    """The current CUDA device, a tuning bundle and its problems."""

    def __init__(self, setup: Setup) -> None:
        self._bundle = runtime.load(setup.bundle)
        self._hashes: dict[tuple[str, int], str] = {}
        known = self._bundle.kernels
        found = find_problems(setup.problems)
        asked = of_kernels(found, setup.kernels)
        self._problems = [one for one in asked if one.listed.kernel in known]
        self._missing = tuple(dict.fromkeys(one.listed.kernel for one in asked if one.listed.kernel not in known))
        if not self._problems:
            what = f"expected problems of the bundle's kernels, {', '.join(known)}: choose others with --problems or --kernel"
            got = f"problems of {', '.join(self._missing)}" if self._missing else "none"
            raise NojitError(what, got=got, where=str(setup.bundle))
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        check_fit(self._bundle, 10 * properties.major + properties.minor, str(setup.bundle))
        uuid = str(getattr(properties, "uuid", ""))
        self._nvml = Nvml(f"GPU-{uuid}" if uuid and not uuid.startswith("GPU-") else uuid)
        self._device = _describe(properties, uuid, self._nvml.driver())
        # writing twice the size of the L2 cache evicts everything, and is faster than reading
        self._flushed = torch.empty(2 * properties.L2_cache_size, dtype=torch.int8, device="cuda")
        self.flush_us = self._measure_flush()

    def _measure_flush(self) -> float:
        """Measure the microseconds of one flush. The many flushes also raise the GPU's clock before the first sample."""
        for _ in range(_FLUSHES):
            self.flush()
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        for _ in range(_FLUSHES):
            self.flush()
        last.record()
        last.synchronize()
        return float(first.elapsed_time(last)) * 1000 / _FLUSHES

    def flush(self) -> None:
        """Evict everything from the L2 cache."""
        self._flushed.zero_()

    def hello(self) -> Hello:
        """Return the device, the problems, and the kernels that the bundle lacks."""
        return Hello(self._device, torch.__version__, tuple(one.listed for one in self._problems), self._missing)

    def clock_mhz(self) -> int | None:
        """Return the clock of the multiprocessors in MHz; None if unknown."""
        return self._nvml.clock_mhz()

    def image_hash(self, kernel: str, image: int) -> str:
        """Return the SHA-256 of an image, cached; `image` is its index in the file that holds the kernel."""
        if (kernel, image) not in self._hashes:
            file = next(file for file in self._bundle.files if kernel in file.kernels)
            self._hashes[kernel, image] = hashlib.sha256(file.image(kernel, image)).hexdigest()
        return self._hashes[kernel, image]

    def open(self, problem: int) -> TorchTrial:
        """Prepare a problem.

        Raises:
            Unready: the problem cannot be prepared.
            ContextLost: the preparation destroyed the context.
        """
        try:
            return TorchTrial(self, self._bundle.kernel(self._problems[problem].listed.kernel), self._problems[problem])
        except torch.OutOfMemoryError as error:
            raise Unready(_first_line(error)) from None
        except NoMatchingVariantError as error:
            why = ": ".join(error.reasons[0]) if error.reasons else error.what
            raise Unready(f"no variant of the bundle matches the problem's call: {why}") from None
        except (RuntimeError, ValueError, TypeError) as error:
            _refuse(error)


def _describe(properties: Any, uuid: str, driver: str) -> Device:
    # "gfx942:sramecc+:xnack-" of AMD's GPUs
    gcn = str(getattr(properties, "gcnArchName", "")).partition(":")[0]
    return Device(
        name=properties.name,
        arch=gcn if is_arch(gcn) else f"sm_{properties.major}{properties.minor}",
        multiprocessors=properties.multi_processor_count,
        memory_bytes=properties.total_memory,
        driver=driver,
        uuid=uuid,
    )


def _refuse(error: Exception) -> NoReturn:
    """Raise `ContextLost` if an error destroyed the context, else `Unready`.

    Raises:
        ContextLost: the context is lost.
        Unready: the error concerns only this problem.
    """
    if _is_lost():
        raise ContextLost(_first_line(error)) from None
    raise Unready(f"{type(error).__name__}: {_first_line(error)}") from None


def _is_lost() -> bool:
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return True
    return not runtime.healthy()


def _first_line(error: Exception) -> str:
    """Return the first line of an error's message."""
    return " ".join(str(error).split("\n")[0].split())[:300]


class TorchTrial:
    """One problem, ready on the device.

    Attributes:
        opened: the event that describes the problem.
    """

    def __init__(self, gpu: TorchGpu, kernel: runtime.Kernel, found: FoundProblem) -> None:
        self._gpu = gpu
        self._work = found.problem.prepare("cuda")
        if self._work.kernel != kernel.name:
            raise Unready(f"the problem launches kernel {self._work.kernel} on this device, not {kernel.name}")
        args, named = self._work.args, self._work.named
        choices = kernel.choices(*args, **named)
        table, rows = choices.table, choices.rows
        self.opened = Opened(
            key_names=tuple(choices.key),
            key=tuple(choices.key.values()),
            case=table.axis_values(table.columns["case"][rows[0]]),
            moved_bytes=self._work.moved_bytes,
            flops=self._work.flops,
            roles=found.roles,
            candidates=tuple(_candidate(gpu, table, same) for same in candidates_of(table, rows)),
        )
        self._launchers = [kernel.bind(**named, **candidate.settings) for candidate in self.opened.candidates]
        self._expected = [value.contiguous() for value in self._work.expected]

    def check(self, candidate: int) -> tuple[Status, str]:
        """Fill the outputs with NaN (ints with -1), launch a candidate once, and compare its output."""
        for output in self._work.outputs:
            output.fill_(float("nan") if output.is_floating_point() else -1)
        try:
            self._launchers[candidate](*self._work.args)
            torch.cuda.current_stream().synchronize()
        except (NojitError, RuntimeError) as error:
            if isinstance(error, DriverError) or not isinstance(error, NojitError):
                _raise_if_lost(error)
            return "failed", f"{type(error).__name__}: {_first_line(error)}"
        return self._compare()

    def _compare(self) -> tuple[Status, str]:
        """Compare the outputs with the expected ones, with a single wait for the device."""
        pairs = list(zip(self._work.outputs, self._expected, strict=True))
        errors = torch.stack([_distance(output, expected) for output, expected in pairs]).tolist()
        if any(map(math.isnan, errors)):
            errors = [_error(output, expected) for output, expected in pairs]
        for place, (error, tolerance) in enumerate(zip(errors, self._work.tolerances, strict=True)):
            # negated, so that NaN counts as wrong
            if not error <= tolerance:
                return "wrong", f"output {place} differs by {error:.3g}, more than {tolerance:.3g}"
        return "ok", ""

    def time(self, order: Sequence[int]) -> list[float]:
        """Launch candidates in this order, each after a flush, and wait once; return the microseconds of each launch."""
        events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in order]
        launchers, args, flush = self._launchers, self._work.args, self._gpu.flush
        try:
            for candidate, (first, last) in zip(order, events, strict=True):
                flush()
                first.record()
                launchers[candidate](*args)
                last.record()
            torch.cuda.synchronize()
        except (NojitError, RuntimeError) as error:
            # every candidate passed its check, so an error now means that the context is lost
            raise ContextLost(_first_line(error)) from None
        return [float(first.elapsed_time(last)) * 1000 for first, last in events]

    def close(self) -> None:
        """Free the memory."""
        self._launchers, self._expected = [], []
        del self._work


def _raise_if_lost(error: Exception) -> None:
    if _is_lost():
        raise ContextLost(_first_line(error)) from None


def _distance(output: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """Return the largest absolute difference as a device scalar, computed in pieces; NaN also for equal infinities."""
    if not expected.numel():
        return torch.zeros((), device=expected.device)
    got, wanted = output.reshape(-1), expected.reshape(-1)
    pieces = [slice(first, first + _COMPARED) for first in range(0, wanted.numel(), _COMPARED)]
    return torch.stack([(got[piece] - wanted[piece]).float().abs_().amax() for piece in pieces]).amax()


def _error(output: torch.Tensor, expected: torch.Tensor) -> float:
    """Return the largest absolute difference, with 0 for equal infinities."""
    same = output.float() == expected.float()
    return float(_distance(output.float().masked_fill(same, 0.0), expected.float().masked_fill(same, 0.0)))


def candidates_of(table: KernelTable, rows: Sequence[int]) -> list[list[int]]:
    """Group the rows of equal settings, best first; leave out rows whose matrix point differs from that of the best row."""
    found: dict[str, list[int]] = {}
    # one point can have several cases, if configs select the block of a TMA descriptor
    points = [table.cases[table.columns["case"][row]].values for row in rows]
    for row, point in zip(rows, points, strict=True):
        if point == points[0]:
            # configs of the same settings differ only in `requires`, and the call satisfies all
            found.setdefault(identity_of(table.settings(row)), []).append(row)
    return list(found.values())


def _candidate(gpu: TorchGpu, table: KernelTable, rows: Sequence[int]) -> Candidate:
    """Return the candidate of rows with the same settings, with the image of the best row."""
    rules = dict.fromkeys(table.configs[table.columns["config"][row]].requires for row in rows)
    image = gpu.image_hash(table.kernel, table.columns["image"][rows[0]])
    return Candidate(table.settings(rows[0]), tuple(rules), image)
