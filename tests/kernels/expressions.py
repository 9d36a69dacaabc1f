"""Random expressions for tests."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

UNARY = ("silu", "sigmoid", "tanh", "relu", "abs", "square", "erf", "gelu", "gelu_tanh", "sin", "cos")


def expressions(inputs: Sequence[str], functions: Sequence[str] = UNARY) -> st.SearchStrategy[str]:
    """Draw the text of an expression over some of the inputs; it has values and slopes at every finite number."""
    leaves = st.sampled_from(inputs)
    numbers = st.sampled_from(["2", "0.5", "3", "1.25"])

    def extend(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        return st.one_of(
            st.tuples(inner, st.sampled_from("+-*"), st.one_of(inner, numbers)).map(
                lambda parts: f"({' '.join(parts)})"
            ),
            st.tuples(st.sampled_from(functions), inner).map(lambda parts: f"{parts[0]}({parts[1]})"),
            st.tuples(inner, inner).map(lambda parts: f"{parts[0]} / (1 + square({parts[1]}))"),
            inner.map(lambda part: f"-{part}"),
            st.tuples(inner, inner, inner).map(
                lambda parts: f"where({parts[0]} < {parts[1]}, {parts[2]}, 2 * {parts[0]})"
            ),
            st.tuples(inner, inner).map(lambda parts: f"maximum({parts[0]}, minimum({parts[1]}, 2))"),
        )

    return st.recursive(leaves, extend, max_leaves=6)
