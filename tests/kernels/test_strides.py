"""Strides in the form that kernels take."""

from __future__ import annotations

import pytest
from nojit.kernels.calls.strides import named


def test_values_get_the_names_of_params() -> None:
    assert named("stride_x", "nc", (8, 1)) == {"stride_xn": 8, "stride_xc": 1}


@pytest.mark.parametrize("values", [(8,), (8, 1, 1)])
def test_each_dimension_has_one_value(values: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="zip"):
        named("stride_x", "nc", values)
