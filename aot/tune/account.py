"""What selection and evaluation found, as plain facts: for tables on a terminal, JSON and the report. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from nojit.aot.tune.evaluate import Evaluation
from nojit.aot.tune.evidence import Evidence
from nojit.aot.tune.portfolio import Portfolio
from nojit.aot.tune.select import Bounds, Group, Selection, config_label

__all__ = ["CurveStep", "GroupFacts", "QualityFacts", "TableFacts", "quality_facts", "table_facts"]


@dataclass(frozen=True, slots=True)
class CurveStep:
    """What the best portfolio of one size leaves."""

    configs: int
    worst_loss: float
    """How far the worst problem is from its best, as a share: 0.05 is 5 % slower."""
    mean_loss: float
    """The same of all problems, as a geometric mean by their weights."""


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """The portfolio of one kernel for dtypes that are tuned alike."""

    dtypes: tuple[str, ...]
    apart: str
    """Values of axes that have portfolios of their own: ``GROUPS=none``; empty without such axes."""
    rows: int
    """Problems, those in one bucket counted once."""
    candidates: int
    """Configs that were timed and never wrong."""
    configs: tuple[str, ...]
    """Those chosen, in words."""
    worst_loss: float | None
    """Of the worst problem, as a share; None if nothing serves every problem."""
    mean_loss: float | None
    """Geometric mean over the problems, by their weights."""
    kept: bool
    """Whether every problem is within the loss that was asked for."""
    exact: bool
    """Whether no other portfolio of this size is better; False if the search was cut short."""
    early: int
    """How many times of chosen configs stem from an early rung, with few samples."""
    unserved: tuple[str, ...]
    """Problems that no config serves."""
    by_rows: float | None
    """How near to the best the rows that are near choose, on problems left out, as a geometric mean of shares; None unless
    the kernel has terms, and enough was measured."""
    by_costs: float | None
    """The same of costs. The better of the two decides."""
    costless: bool
    """Whether the kernel has terms, and costs could not be fitted."""
    curve: tuple[CurveStep, ...]

    @property
    def label(self) -> str:
        """Name what it serves."""
        return ", ".join(self.dtypes) + (f", {self.apart}" if self.apart else "")


@dataclass(frozen=True, slots=True)
class TableFacts:
    """The tuned table of one kernel and device."""

    kernel: str
    device: str
    arch: str
    path: str
    """The file; empty if none was written."""
    entries: int
    rows: int
    configs: int
    """Different ones, over all groups."""
    groups: tuple[GroupFacts, ...]


@dataclass(frozen=True, slots=True)
class QualityFacts:
    """How near the tuned table of one kernel and device comes to the best, on problems that it was not made from."""

    kernel: str
    device: str
    use: str
    """Which problems."""
    problems: int
    unknown: int
    """How many of them have no share: the table does not cover them, or its choice was not measured."""
    mean_share: float | None
    """The best time over the choice's, as a geometric mean; None if no problem has a share, or there is no table."""
    worst_share: float | None
    worst_problem: str
    """The problem of the worst share."""


def quality_facts(use: str, evidence: Evidence, result: Evaluation | None) -> QualityFacts:
    """Sum an evaluation up; None if the kernel has no table."""
    known = [one for one in result.problems if one.share is not None] if result else []
    return QualityFacts(
        kernel=evidence.kernel.name,
        device=evidence.device.name,
        use=use,
        problems=len(evidence.problems),
        unknown=len(evidence.problems) - len(known),
        mean_share=result.mean_share if result else None,
        worst_share=result.worst_share if result else None,
        worst_problem=f"{known[0].problem} ({known[0].dtype})" if known else "",
    )


def table_facts(evidence: Evidence, selection: Selection, bounds: Bounds, path: str) -> TableFacts:
    """Sum a selection up."""
    table = selection.table
    return TableFacts(
        kernel=table.kernel,
        device=table.device.name,
        arch=table.device.arch,
        path=path,
        entries=len(table.entries),
        rows=sum(len(entry.rows) for entry in table.entries),
        configs=len(table.configs),
        groups=tuple(_group_facts(evidence, group, bounds) for group in selection.groups),
    )


def _group_facts(evidence: Evidence, group: Group, bounds: Bounds) -> GroupFacts:
    served = bool(group.chosen.configs)
    return GroupFacts(
        dtypes=group.dtypes,
        apart=group.apart,
        rows=len(group.cases),
        candidates=group.configs,
        configs=tuple(config_label(evidence.configs[number]) for number in group.chosen.configs),
        worst_loss=group.chosen.worst - 1 if served else None,
        mean_loss=group.chosen.mean - 1 if served else None,
        kept=served and group.chosen.worst <= 1 + bounds.loss and not group.unserved,
        exact=group.chosen.exact,
        early=group.early,
        unserved=group.unserved,
        by_rows=group.estimates.by_rows if group.estimates else None,
        by_costs=group.estimates.by_costs if group.estimates else None,
        costless=group.has_terms and group.estimates is None,
        curve=tuple(map(_step, group.curve)),
    )


def _step(one: Portfolio) -> CurveStep:
    return CurveStep(len(one.configs), one.worst - 1, one.mean - 1)
