"""Tunings from the files that ``NOJIT_TUNING`` names, which stand in for those of bundles."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from nojit.runtime.base.environment import TUNING
from nojit.runtime.base.frozen_record import Record
from nojit.runtime.base.wording import worded
from nojit.runtime.errors import TuningError
from nojit.runtime.expr.expression import parse
from nojit.runtime.table.table import KernelTable
from nojit.runtime.table.tuning import TunedDevice, Tuning
from nojit.runtime.tuning.resolution import DEFAULT_BUCKET, resolve
from nojit.runtime.tuning.tuned_tables import TunedTable, read_tuned

__all__ = ["SUFFIX", "TuningSource", "override_of", "read_overrides"]

SUFFIX = ".toml"


class TuningSource(Record):
    """A kernel's tuning from files."""

    tuning: Tuning
    origins: tuple[str, ...]
    """For each of its tables, the file."""


def read_overrides(places: str) -> dict[str, list[TunedTable]]:
    """Read the tuned tables that ``NOJIT_TUNING`` names, by kernel.

    Args:
        places: its value.

    Raises:
        TuningError: a place is missing, a folder has no tables, a file breaks a rule.
    """
    found: dict[str, list[TunedTable]] = {}
    for path in dict.fromkeys([path for place in places.split(os.pathsep) if place for path in _files_of(place)]):
        try:
            tuned = read_tuned(path)
        except OSError as error:
            what = "expected a tuned table or a folder of them"
            raise TuningError(what, got=worded(error), where=f"{TUNING}: {path}") from None
        found.setdefault(tuned.kernel, []).append(tuned)
    return found


def _files_of(place: str) -> Iterator[str]:
    try:
        names = os.listdir(place)  # noqa: PTH208 - as in `loader`
    except OSError:
        # no folder: the reader says what it is instead
        yield place
        return
    files = [os.path.join(place, name) for name in sorted(names) if name.endswith(SUFFIX)]  # noqa: PTH118 - as above
    if not files:
        raise TuningError(f"expected *{SUFFIX} files", got="none", where=f"{TUNING}: {place}")
    yield from files


def override_of(tuned: Sequence[TunedTable], table: KernelTable, arch: str) -> TuningSource | None:
    """Make a kernel's tuning of tuned tables; None if none of them is for the arch.

    Args:
        tuned: of this kernel.
        table: its variants in one bundle.
        arch: of that bundle.

    Raises:
        TuningError: a table names what the kernel lacks, two have different keys or the same device.
    """
    fitting = [each for each in tuned if each.device.arch == arch]
    if not fitting:
        return None
    first = fitting[0]
    devices: dict[TunedDevice, str] = {}
    for each in fitting:
        if tuple(map(parse, each.key)) != tuple(map(parse, first.key)):
            what = f"expected the same key as in {first.path}: {', '.join(first.key)}"
            raise TuningError(what, got=", ".join(each.key), where=f"{each.path} $.key")
        if devices.setdefault(each.device, each.path) != each.path:
            got = f"the device of {devices[each.device]} again"
            raise TuningError("expected each device once for a kernel", got=got, where=f"{each.path} $.device")
    tables = tuple([resolve(each, table) for each in fitting])
    bucket = DEFAULT_BUCKET if table.tuning is None else table.tuning.bucket
    return TuningSource(Tuning(first.key, bucket, tables), tuple([each.path for each in fitting]))
