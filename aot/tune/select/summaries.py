"""Summaries of selections and evaluations, as plain records for the terminal, JSON and the report. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from nojit.aot.tune.select.evaluate import Evaluation
from nojit.aot.tune.select.measured_times import MeasuredTimes
from nojit.aot.tune.select.portfolio import Portfolio
from nojit.aot.tune.select.selection import Bounds, Group, SelectedTable, config_label

__all__ = ["CurveStep", "GroupFacts", "QualityFacts", "TableFacts", "quality_facts", "table_facts"]


@dataclass(frozen=True, slots=True)
class CurveStep:
    """Loss of the best portfolio of one size."""

    configs: int
    worst_loss: float
    """Slowdown of the worst problem, as a share: 0.05 is 5% slower."""
    mean_loss: float
    """Mean slowdown of all problems, as a share: a weighted geometric mean."""


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """The portfolio of one kernel for dtypes that share measurements."""

    dtypes: tuple[str, ...]
    apart: str
    """Values of the axes with separate portfolios, such as `GROUPS=none`; empty without such axes."""
    rows: int
    """Number of problems; problems in one bucket count once."""
    candidates: int
    """Number of configs that were timed and never wrong."""
    configs: tuple[str, ...]
    """Selected configs, as labels."""
    worst_loss: float | None
    """Loss of the worst problem, as a share; None if no set of configs serves every problem."""
    mean_loss: float | None
    """Mean loss of the problems, as a share: a weighted geometric mean; None if `worst_loss` is."""
    kept: bool
    """Whether every problem is within the requested loss."""
    exact: bool
    """Whether no better portfolio of this size exists; False if the search stopped early and cannot tell."""
    early: int
    """Number of times of selected configs that come from an early rung, with few samples."""
    unserved: tuple[str, ...]
    """Problems that no config serves."""
    by_rows: float | None
    """Quality of ranking by near rows, cross-validated on left-out problems: best time over the time of the config ranked first, as a
    geometric mean; None without terms or enough measurements."""
    by_costs: float | None
    """Quality of ranking by fitted costs, measured in the same way. The table uses the better of the two rankings."""
    costless: bool
    """Whether the kernel has terms whose costs could not be fitted."""
    curve: tuple[CurveStep, ...]

    @property
    def label(self) -> str:
        """The dtypes of the group and the values of its `apart` axes, as text."""
        return ", ".join(self.dtypes) + (f", {self.apart}" if self.apart else "")


@dataclass(frozen=True, slots=True)
class TableFacts:
    """The tuned table of one kernel and device."""

    kernel: str
    device: str
    arch: str
    path: str
    """Path of the file; empty if none was written."""
    entries: int
    rows: int
    configs: int
    """Distinct configs of all groups."""
    groups: tuple[GroupFacts, ...]


@dataclass(frozen=True, slots=True)
class QualityFacts:
    """Quality of one kernel's tuned table on problems that were not used to make it."""

    kernel: str
    device: str
    use: str
    """Use of the problems."""
    problems: int
    unknown: int
    """Number of problems of unknown quality: the table does not cover them, or the selected config was not measured."""
    mean_share: float | None
    """Best time over the selected config's time, as a geometric mean; None without a table or any share."""
    worst_share: float | None
    """Lowest share of any problem."""
    worst_problem: str
    """Problem with the worst share."""


def quality_facts(use: str, measured: MeasuredTimes, result: Evaluation | None) -> QualityFacts:
    """Return the summary of an evaluation.

    Args:
        use: the use of the problems: ``held_out``.
        measured: the measurements of the problems.
        result: the evaluation; None if the kernel has no table.
    """
    known = [one for one in result.problems if one.share is not None] if result else []
    return QualityFacts(
        kernel=measured.kernel.name,
        device=measured.device.name,
        use=use,
        problems=len(measured.problems),
        unknown=len(measured.problems) - len(known),
        mean_share=result.mean_share if result else None,
        worst_share=result.worst_share if result else None,
        worst_problem=f"{known[0].problem} ({known[0].dtype})" if known else "",
    )


def table_facts(measured: MeasuredTimes, selection: SelectedTable, bounds: Bounds, path: str) -> TableFacts:
    """Return the summary of a selection; `path` is the file of the table, empty if none was written.

    `measured`: all measurements of one kernel on one kind of device.
    """
    table = selection.table
    return TableFacts(
        kernel=table.kernel,
        device=table.device.name,
        arch=table.device.arch,
        path=path,
        entries=len(table.entries),
        rows=sum(len(entry.rows) for entry in table.entries),
        configs=len(table.configs),
        groups=tuple(_group_facts(measured, group, bounds) for group in selection.groups),
    )


def _group_facts(measured: MeasuredTimes, group: Group, bounds: Bounds) -> GroupFacts:
    served = bool(group.chosen.configs)
    return GroupFacts(
        dtypes=group.dtypes,
        apart=group.apart,
        rows=len(group.cells),
        candidates=group.configs,
        configs=tuple(config_label(measured.configs[number]) for number in group.chosen.configs),
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
