"""The stand-in's host-side names behave as those of the installed Triton, whose version it is told: both tell the same facts."""

from __future__ import annotations

import json
from functools import cache

import pytest

from tests.runtime.serve.conftest import run
from tests.support.triton_facts import FACTS

triton = pytest.importorskip("triton")

# facts about names that older versions lack, or that behave otherwise there
NEW = {
    "aggregates",
    "allocators",
    "attributes_of_functions",
    "compound_types",
    "descriptors_of_gluon",
    "knobs",
    "layouts_of_gluon",
    "pruned_configs",
    "tensor_descriptors",
}
SCRIPT = "from tests.support import triton_facts\ntriton_facts.main()"


@cache
def facts(standin: bool) -> dict[str, object]:
    told: dict[str, object] = json.loads(
        run(SCRIPT, hidden=standin, installed=standin, version=triton.__version__).splitlines()[-1]
    )
    return told


@pytest.mark.parametrize("name", sorted(FACTS))
def test_the_stand_in_tells_the_same_fact_as_triton(name):
    if name in NEW and triton.__version__ < "3.9":
        pytest.skip("a fact of Triton 3.9")
    expected = facts(False)[name]
    # a fact that fails as a whole would compare nothing
    assert not isinstance(expected, str), expected
    assert facts(True)[name] == expected
