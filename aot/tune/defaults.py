"""Which config a manifest would run where nothing was tuned. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nojit.aot.config_rules import CONFIG_RULES
from nojit.aot.options import OPTIONS, TUNABLE
from nojit.aot.tune.evidence import Evidence
from nojit.aot.tune.lookup import find_config
from nojit.aot.tune.records import Problem
from nojit.aot.tune.rules import TuningRules
from nojit.runtime import expr
from nojit.runtime.target import arch_number
from nojit.runtime.tuned import TunedConfig

__all__ = ["default_config"]


def default_config(evidence: Evidence, rules: TuningRules, problem: Problem) -> int | None:
    """Return the first config of the manifest that is for a problem's meaning and arch; None if it was not measured."""
    arch = evidence.device.arch
    for raw in rules.configs:
        if arch in raw.get("archs", (arch,)) and _holds(raw, problem, arch):
            settings = {name: OPTIONS[name].default for name in TUNABLE}
            settings |= {name: value for name, value in raw.items() if name not in CONFIG_RULES}
            return find_config(evidence.configs, TunedConfig(tuple(settings.items()), raw.get("requires", "")))
    return None


def _holds(raw: Mapping[str, Any], problem: Problem, arch: str) -> bool:
    names = {"arch": arch_number(arch), **problem.meaning, **raw}
    plain = {name: value for name, value in names.items() if isinstance(value, bool | int | str)}
    try:
        return expr.parse(raw.get("when", "true")).evaluate(plain) is True
    except expr.ExpressionError:
        return False
