"""The stand-in's host-side names behave as those of the installed Triton: both tell the same facts."""

from __future__ import annotations

import json
from functools import cache

import pytest

from tests.runtime.serve.conftest import run
from tests.support.triton_facts import FACTS

pytest.importorskip("triton")
SCRIPT = "from tests.support import triton_facts\ntriton_facts.main()"


@cache
def facts(standin: bool) -> dict[str, object]:
    told: dict[str, object] = json.loads(run(SCRIPT, hidden=standin, installed=standin).splitlines()[-1])
    return told


@pytest.mark.parametrize("name", sorted(FACTS))
def test_the_stand_in_tells_the_same_fact_as_triton(name):
    expected = facts(False)[name]
    # a fact that fails as a whole would compare nothing
    assert not isinstance(expected, str), expected
    assert facts(True)[name] == expected
