"""The tests of a module in several processes: which of them a process takes, and what all of them together launched.

`NOJIT_TEST_SHARE`, ``2/5`` say, takes every fifth test from the second on. Variants that no test launched are judged where
all have run: shares leave what they launched in the folder that `NOJIT_TEST_LAUNCHED` names, and the test that judges reads
it there, in a process without a share.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

JUDGE = "test_every_variant_was_launched"
"""What the test is called that judges, in every module that has one. It is part of each share."""


def share_of(spelled: str) -> tuple[int, int]:
    """Read a share: which, from 0, and of how many.

    Raises:
        ValueError: it is none.
    """
    number, _, count = spelled.partition("/")
    if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise ValueError(f"expected NOJIT_TEST_SHARE to be such as 2/5, got {spelled!r}")
    return int(number) - 1, int(count)


def taken(tests: Sequence[T], names: Sequence[str], share: tuple[int, int]) -> list[T]:
    """Return the tests of a share, in their order, with those that judge.

    Args:
        tests: all of them.
        names: of the function of each.
        share: as `share_of` reads it.
    """
    first, count = share
    judges = {place for place, name in enumerate(names) if name == JUDGE}
    others = [place for place in range(len(tests)) if place not in judges]
    chosen = judges | {*others[first::count]}
    return [test for place, test in enumerate(tests) if place in chosen]


def write_launched(folder: Path, module: str, share: str, rows: Mapping[str, set[int]]) -> None:
    """Leave what one share of a module's tests launched: rows, by the kernel's name."""
    path = folder / f"{module}-{share.replace('/', 'of')}.json"
    path.write_text(json.dumps({name: sorted(launched) for name, launched in rows.items()}))


def read_launched(folder: Path, module: str) -> dict[str, set[int]]:
    """Return what all shares of a module's tests launched."""
    rows: dict[str, set[int]] = {}
    for path in sorted(folder.glob(f"{module}-*.json")):
        for name, launched in json.loads(path.read_text()).items():
            rows.setdefault(name, set()).update(launched)
    return rows


def running_module() -> str:
    """Return the name of the module whose test is running."""
    return Path(os.environ["PYTEST_CURRENT_TEST"].partition("::")[0]).stem
