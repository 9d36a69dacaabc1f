"""Expressions of every kind, and values for their names."""

from hypothesis import strategies as st
from nojit.runtime.expr.expression import INT64_MAX, INT64_MIN, UNSEEN, Pointer

__all__ = ["ANY_TEXT", "TYPED", "VALUES"]

VALUES = {
    "n": 100,
    "zero": 0,
    "big": INT64_MAX,
    "low": INT64_MIN,
    "flag": True,
    "name": "relu",
    "half": 0.5,
    "p": Pointer(4096),
    "odd": Pointer(4098),
    "absent": None,
    "u64": 1 << 63,
    "pair": UNSEEN,
}

LITERALS = st.one_of(
    st.sampled_from(["0", "1", "2", "16", "true", "false", "none", "'a'", '"b"', "-1", "-9223372036854775808"]),
    st.integers(0, 40).map(str),
    st.just(str(INT64_MAX)),
)
NAMES = st.sampled_from([*VALUES, "unknown"])


def _extend(inner):
    operators = st.sampled_from(["+", "-", "*", "//", "%", "==", "!=", "<", "<=", ">", ">=", "and", "or"])
    binary = st.builds("({} {} {})".format, inner, operators, inner)
    return st.one_of(
        binary,
        binary,
        binary,
        st.builds("({0} {1} {2} {1} {3})".format, inner, st.sampled_from(["and", "or", "+"]), inner, inner),
        st.builds("(not {})".format, inner),
        st.builds("(-{})".format, inner),
        st.builds("{}({}, {})".format, st.sampled_from(["cdiv", "min", "max", "aligned"]), inner, inner),
        st.builds("{}({}, {}, {})".format, st.sampled_from(["min", "max"]), inner, inner, inner),
        st.builds("{}({})".format, st.sampled_from(["has", "next_pow2"]), inner),
    )


ANY_TEXT = st.recursive(LITERALS | NAMES, _extend, max_leaves=12)


def _extend_typed(inner):
    ints, bools = inner
    return (
        st.one_of(
            st.builds("({} {} {})".format, ints, st.sampled_from(["+", "-", "*", "//", "%"]), ints),
            st.builds("-{}".format, ints),
            st.builds("{}({}, {})".format, st.sampled_from(["cdiv", "min", "max"]), ints, ints),
            st.builds("next_pow2({})".format, ints),
        ),
        st.one_of(
            st.builds("({} {} {})".format, ints, st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), ints),
            st.builds("({} {} {})".format, bools, st.sampled_from(["and", "or", "==", "!="]), bools),
            st.builds("(not {})".format, bools),
        ),
    )


@st.composite
def typed(draw):
    ints = st.integers(0, 200).map(str) | st.sampled_from(["n", "zero"])
    bools = st.sampled_from(["true", "false", "flag"])
    for _ in range(3):
        more_ints, more_bools = _extend_typed((ints, bools))
        ints, bools = ints | more_ints, bools | more_bools
    return draw(ints | bools)


TYPED = typed()
ANY_TEXT |= TYPED
