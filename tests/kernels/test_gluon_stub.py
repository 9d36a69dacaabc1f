"""The stand-in for Gluon: an error in one part of a kernel reaches the test while other parts wait."""

from __future__ import annotations

import pytest
import torch

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


def test_copies_arrive_when_all_parts_wait_the_newest_first():
    source = gluon_stub.Map(torch.ones(1, 1, 2, 2), (2, 2))
    tiles = [gluon_stub.Tile(torch.zeros(2, 2)) for _ in range(2)]
    barriers = [gluon_stub.Barrier() for _ in range(2)]
    for barrier in barriers:
        gluon_stub._init(barrier, 1)

    def copying() -> None:
        for barrier, tile in zip(barriers, tiles, strict=True):
            barrier.move(1, source.block_type.nbytes)
            gluon_stub._copy_in(source, (0, 0, 0, 0), barrier, tile)
        assert not any(tile.value.any() for tile in tiles)
        barriers[1].wait(0)
        assert [bool(tile.value.all()) for tile in tiles] == [False, True]
        barriers[0].wait(0)

    gluon_stub._specialize([(copying, ()), (barriers[0].wait, (0,))])
    assert all(tile.value.all() for tile in tiles)


def test_a_wait_that_nobody_ends_fails():
    barriers = [gluon_stub.Barrier() for _ in range(2)]
    with pytest.raises(AssertionError, match="nobody ends this wait"):
        gluon_stub._specialize([(barrier.wait, (0,)) for barrier in barriers])
