"""Manifest entries for property tests: small, of every shape that matters to expansion, mostly sound."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
from hypothesis import strategies as st
from nojit.aot.manifest.spec import KernelSpec
from nojit.runtime.values import identity

__all__ = ["ARCH_NUMBERS", "REQUIRES", "RULES", "Entry", "entries", "spec"]


def spec(**fields: Any) -> KernelSpec:
    """Make an entry as a manifest would."""
    return msgspec.convert({"name": "k", "source": "demo:k", **fields}, KernelSpec)


ARCH_NUMBERS = {"sm_80": 80, "sm_90": 90}
VALUES: tuple[Any, ...] = (True, False, 1, 0, 1.0, "a", 64)
KINDS = ("*fp16", "i32", "i64", "fp32")
# each rule as the manifest says it, and as Python means it, of (arch, FLAG, X, whether param 0 is there)
RULES: dict[str, Callable[[int, Any, int, bool], bool]] = {
    "true": lambda arch, flag, x, there: True,
    "arch == 90": lambda arch, flag, x, there: arch == 90,
    "FLAG == 1": lambda arch, flag, x, there: type(flag) is int and flag == 1,
    "FLAG == true and X == 2": lambda arch, flag, x, there: flag is True and x == 2,
    "X != 1 or FLAG == 'a'": lambda arch, flag, x, there: x != 1 or flag == "a",
    "has(p0)": lambda arch, flag, x, there: there,
}
# each rule of a call, and the hints that hold wherever it does
REQUIRES: dict[str, dict[str, int]] = {"": {}, "p0_len > 3": {}, "aligned(p0, 16)": {"p0": 16}, "p0_len % 16 == 0 and aligned(p0, 64)": {"p0_len": 16, "p0": 16}}  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """A manifest entry of a form that an independent reference understands."""

    optional: bool
    others: tuple[tuple[str, bool], ...]
    flags: tuple[Any, ...]
    hints: tuple[tuple[tuple[str, int], ...], ...]
    configs: tuple[tuple[int, tuple[str, ...] | None, str, str], ...]
    derived: str
    exclude: str | None
    reason: str

    def spec(self) -> KernelSpec:
        params = {"p0": "*fp16?" if self.optional else "*fp16", "p0_len": "i32"}
        params |= {f"q{i}": kind + "?" * optional for i, (kind, optional) in enumerate(self.others)}
        configs = []
        for x, archs, when, requires in self.configs:
            config: dict[str, Any] = {"X": x, "when": when, "requires": requires}
            configs.append(config | ({"archs": list(archs)} if archs else {}))
        derived: dict[str, Any] = {
            "bool": {"D": "p0_len == X"},
            "values": {"D": {"expr": "p0_len", "values": [1, 2, 3]}},
            "folded": {"D": "X + 1"},
        }.get(self.derived, {})
        return spec(
            params=params,
            matrix={"FLAG": list(self.flags)},
            hints=[dict(hints) for hints in self.hints],
            configs=configs,
            derived=derived,
            exclude=[{"when": self.exclude}] if self.exclude else [],
            aligned_only=self.reason,
        )


def distinct(values: list[Any]) -> list[Any]:
    return list({identity(value): value for value in values}.values())


@st.composite
def entries(draw: st.DrawFn, *, sound: bool = False) -> Entry:
    """Draw an entry; a sound one gives a reason where it would leave calls unserved."""
    others = tuple(draw(st.lists(st.tuples(st.sampled_from(KINDS), st.booleans()), max_size=2)))
    hintable = ["p0", "p0_len"] + [f"q{i}" for i, (kind, _) in enumerate(others) if kind != "fp32"]
    hint_set = st.dictionaries(st.sampled_from(hintable), st.just(16), min_size=1).map(lambda d: tuple(d.items()))
    config = st.tuples(
        st.none() | st.sampled_from([("sm_80",), ("sm_90", "sm_80")]),
        st.sampled_from(sorted(RULES)),
        st.sampled_from(sorted(REQUIRES)),
    )
    configs = draw(st.lists(config, min_size=1, max_size=3))
    return Entry(
        optional=draw(st.booleans()),
        others=others,
        flags=tuple(distinct(draw(st.lists(st.sampled_from(VALUES), min_size=1, max_size=3)))),
        hints=tuple(draw(st.lists(hint_set, max_size=2))),
        configs=tuple((x, *rest) for x, rest in enumerate(configs, 1)),
        derived=draw(st.sampled_from(["none", "bool", "values", "folded"])),
        exclude=draw(st.none() | st.sampled_from(sorted(RULES))),
        reason="a reason" if sound else draw(st.sampled_from(["", "a reason"])),
    )
