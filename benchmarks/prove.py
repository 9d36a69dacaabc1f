"""Launch every variant of bundles on a GPU without Triton, and compare each result with an exact reference. One table.

    python benchmarks/prove.py BUNDLES

BUNDLES is a folder of bundles, built on any machine. Importing triton raises in this process. `device.py --only equality`
compares the same variants with Triton's own launcher, bit for bit; `launch.py` and `cold_start.py` time launches.

`--part sample` launches a sample of the calls and compares nothing. Use it under compute-sanitizer, with torch's memory cache
off so that the checker sees each tensor as an allocation of its own::

    PYTORCH_NO_CUDA_MEMORY_CACHING=1 compute-sanitizer --tool memcheck --report-api-errors no --kernel-name-exclude kns=_Z \
        python benchmarks/prove.py BUNDLES --part sample [--families flex,flex_decoding]

(The runtime queries one parameter past a kernel's last, to see that it does not exist. Kernels with C++ names are torch's, which
take longer under racecheck than all others.)
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Collection, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

# the least number of calls of each family that are launched under a checker
SAMPLE = 40


class _PathsWithoutTriton(PathFinder):
    """Path finder that hides triton, as on a machine without it."""

    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find any module except triton."""
        return None if fullname.partition(".")[0] == "triton" else super().find_spec(fullname, path, target)


def without_triton(bundles: str) -> int:
    """Launch every variant and compare it with the references; return the number of wrong calls."""
    sys.meta_path[sys.meta_path.index(PathFinder)] = _PathsWithoutTriton
    import torch
    from nojit import runtime
    from nojit.kernels import library

    from tests.gpu import calls
    from tests.gpu.replay import Steered
    from tests.kernels.accuracy import assert_accurate

    steered = Steered(runtime.load(bundles))
    wrong = count = 0
    started = time.monotonic()
    with library.override(steered, devices=frozenset({"cuda"})):
        for call in [*calls.all_calls(), *calls.huge_pointwise_calls()]:
            exact, torchs = call.exact(), call.torchs()
            for _ in steered.rounds():
                count += 1
                try:
                    for value, right, own, factor in zip(call.run(), exact, torchs, call.factors, strict=True):
                        assert_accurate(value, right, own, factor)
                except AssertionError as error:
                    wrong += 1
                    print(f"WRONG {call.label}: {error}", flush=True)
    if "triton" in sys.modules:
        raise RuntimeError("expected no import of triton, got one")
    print(
        f"device {torch.cuda.get_device_name()}, torch {torch.__version__}, {count} calls, {wrong} wrong, {time.monotonic() - started:.0f} s"
    )
    print(f"{'kernel':28s} {'variants':>9s} {'launched':>9s} {'launches':>9s}")
    for name, tally in sorted(steered.tallies.items()):
        print(f"{name:28s} {tally.variants:9d} {len(tally.rows):9d} {tally.launches:9d}")
    return wrong


def sample(bundles: str, families: Collection[str], first: int, parts: int) -> int:
    """Launch some calls of every family, with every config that serves each, and compare nothing: for compute-sanitizer.

    Args:
        bundles: a folder of bundles.
        families: the families to launch; all if empty.
        first: the part of these calls to launch, from 0.
        parts: the number of parts.
    """
    import torch
    from nojit import runtime
    from nojit.kernels import library

    from tests.gpu.families import FAMILIES
    from tests.gpu.replay import Steered

    if unknown := [name for name in families if name not in FAMILIES]:
        raise SystemExit(f"--families: expected some of {', '.join(FAMILIES)}, got {', '.join(unknown)}")
    steered = Steered(runtime.load(bundles))
    with library.override(steered, devices=frozenset({"cuda"})):
        for name in families or FAMILIES:
            print(name, flush=True)
            listed = list(FAMILIES[name].calls())
            for call in listed[:: max(len(listed) // SAMPLE, 1)][first::parts]:
                for _ in steered.rounds():
                    call.run()
    torch.cuda.synchronize()
    for name, tally in sorted(steered.tallies.items()):
        print(f"{name:28s} {len(tally.rows):4d} of {tally.variants} variants, {tally.launches} launches")
    return 0


def main() -> None:
    """Launch and print the table; exit 1 if a result is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bundles")
    parser.add_argument("--part", choices=["every", "sample"], default="every", help="which variants to launch")
    parser.add_argument(
        "--families", default="", help="with --part sample: for example flex,flex_decoding; default: all"
    )
    parser.add_argument("--share", default="1/1", help="with --part sample: for example 2/4, the second of four parts")
    given = parser.parse_args()
    if given.part == "every":
        sys.exit(1 if without_triton(given.bundles) else 0)
    first, parts = map(int, given.share.split("/"))
    if not 1 <= first <= parts:
        parser.error(f"--share: expected a part such as 2/4, got {given.share}")
    families = [name for name in given.families.split(",") if name]
    sys.exit(sample(given.bundles, families, first - 1, parts))


if __name__ == "__main__":
    main()
