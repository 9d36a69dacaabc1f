"""The stand-in for Gluon: an error in one part of a kernel reaches the test while other parts wait."""

from __future__ import annotations

import pytest

from tests.kernels import gluon_stub


def failing() -> None:
    raise ValueError("from a consumer")


@pytest.mark.parametrize("fails_first", [True, False])
def test_an_error_of_a_part_ends_the_waits_of_the_others(fails_first):
    barriers = [gluon_stub.Barrier() for _ in range(2)]
    ends: list[type[BaseException]] = []

    def waiting(barrier: gluon_stub.Barrier) -> None:
        try:
            barrier.wait(0)
        except BaseException as error:
            ends.append(type(error))
            raise

    parts = [(waiting, (barrier,)) for barrier in barriers]
    parts.insert(0 if fails_first else len(parts), (failing, ()))
    with pytest.raises(ValueError, match="from a consumer"):
        gluon_stub._specialize(parts)
    assert ends == [gluon_stub.AbortedError] * 2


def test_a_wait_that_has_ended_returns():
    barrier = gluon_stub.Barrier()
    gluon_stub._init(barrier, 1)
    gluon_stub._specialize([(barrier.wait, (0,)), (barrier.move, (1, 0))])
    assert barrier.phase == 1
