"""Claims: one builder at a time, and none of a dead builder."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from nojit.aot.cache import claims as module
from nojit.aot.cache.claims import Claims
from nojit.aot.cache.store import Folder
from nojit.aot.cache.time_limits import Guard, Limits

KEY, OTHER = "a" * 64, "b" * 64
LIMITS = Limits(beat_s=1e6, expiry_s=20.0)


@pytest.fixture
def place(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "place")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, which a test moves."""
    now = [1000.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def builder(place: Folder) -> Iterator[Callable[[], Claims]]:
    made: list[Claims] = []

    def make() -> Claims:
        made.append(Claims(place, Guard("here", LIMITS, lambda _: None), LIMITS))
        return made[-1]

    yield make
    for each in made:
        each.close()


def names(place: Folder) -> list[str]:
    return [each.name for each in place.list() if each.name.startswith("claims/")]


def test_one_builder_takes_a_key(builder: Callable[[], Claims]) -> None:
    first, second = builder(), builder()
    assert first.take(KEY)
    assert not second.take(KEY)
    assert second.take(OTHER)
    assert second.free({KEY, OTHER}) == set()


def test_a_builder_holds_a_claim_whose_answer_was_lost(place: Folder) -> None:
    class Lossy(Folder):
        def create(self, name: str, data: bytes) -> bool:
            super().create(name, data)
            return False

    first = Claims(Lossy(place.path), Guard("here", LIMITS, lambda _: None), LIMITS)
    second = Claims(Lossy(place.path), Guard("here", LIMITS, lambda _: None), LIMITS)
    assert first.take(KEY)
    assert not second.take(KEY)
    first.drop(KEY)
    assert names(place) == []
    assert second.take(KEY)
    first.close()
    second.close()


def test_a_key_is_free_when_it_was_given_back(builder: Callable[[], Claims], place: Folder) -> None:
    first, second = builder(), builder()
    first.take(KEY)
    first.drop(KEY)
    assert names(place) == []
    assert second.free({KEY}) == {KEY}
    assert second.take(KEY)


def test_the_end_of_a_builder_frees_its_keys(builder: Callable[[], Claims]) -> None:
    first, second = builder(), builder()
    first.take(KEY)
    first.close()
    assert not second.take(KEY)
    assert second.free({KEY}) == {KEY}
    assert second.take(KEY)


def test_a_builder_without_heartbeats_loses_its_keys(builder: Callable[[], Claims], clock: list[float]) -> None:
    killed, second = builder(), builder()
    killed.take(KEY)
    assert not second.take(KEY)
    clock[0] += LIMITS.expiry_s - 1
    assert second.free({KEY}) == set()
    clock[0] += 2
    assert second.free({KEY}) == {KEY}
    assert second.take(KEY)


def test_a_builder_with_heartbeats_keeps_them(builder: Callable[[], Claims], clock: list[float]) -> None:
    living, second = builder(), builder()
    living.take(KEY)
    assert not second.take(KEY)
    for beat in range(1, 6):
        clock[0] += LIMITS.expiry_s - 1
        living._beat(beat)
        assert second.free({KEY}) == set()


def test_the_clock_of_the_other_machine_does_not_count(
    builder: Callable[[], Claims], clock: list[float], place: Folder
) -> None:
    import os

    living, second = builder(), builder()
    living.take(KEY)
    for path in place.path.rglob("*"):
        os.utime(path, (0, 0))
    assert not second.take(KEY)
    assert second.free({KEY}) == set()


def test_one_of_many_takes_over(builder: Callable[[], Claims], clock: list[float], place: Folder) -> None:
    killed, *others = (builder() for _ in range(6))
    killed.take(KEY)
    assert not any(other.take(KEY) for other in others)
    clock[0] += LIMITS.expiry_s + 1
    assert all(other.free({KEY}) == {KEY} for other in others)
    winners = [other for other in others if other.take(KEY)]
    assert len(winners) == 1
    assert all(other.free({KEY}) == set() for other in others)
    winners[0].drop(KEY)
    assert names(place) == []
    assert all(other.free({KEY}) == {KEY} for other in others)


def test_who_was_thought_dead_takes_nothing_from_the_next(
    builder: Callable[[], Claims], clock: list[float], place: Folder
) -> None:
    slow, second, third = (builder() for _ in range(3))
    slow.take(KEY)
    assert not second.take(KEY)
    clock[0] += LIMITS.expiry_s + 1
    assert second.free({KEY}) == {KEY}
    assert second.take(KEY)
    slow.drop(KEY)
    assert names(place) == [f"claims/{KEY}.1"]
    assert third.free({KEY}) == set()


def test_a_number_that_is_claimed_again_belongs_to_the_new_holder(
    builder: Callable[[], Claims], clock: list[float], place: Folder
) -> None:
    first, second, watcher = (builder() for _ in range(3))
    first.take(KEY)
    assert not watcher.take(KEY)
    first.drop(KEY)
    second.take(KEY)
    # the watcher did not look in between
    first.close()
    assert names(place) == [f"claims/{KEY}.0"]
    assert watcher.free({KEY}) == set()
    second.close()
    assert watcher.free({KEY}) == {KEY}


def test_who_gave_a_claim_back_forgets_its_holder(builder: Callable[[], Claims], place: Folder) -> None:
    first, second = builder(), builder()
    place.write(f"claims/{KEY}.0", first.name.encode())
    first.take(KEY)
    first.drop(KEY)
    second.take(KEY)
    second.close()
    assert first.free({KEY}) == {KEY}


def test_a_heartbeat_that_is_being_written_does_not_outlive_its_builder(place: Folder) -> None:
    writing, deleted = threading.Event(), threading.Event()

    class Slow(Folder):
        def write(self, name: str, data: bytes) -> None:
            if data != b"0":
                writing.set()
                deleted.wait(0.3)
            super().write(name, data)

        def delete(self, name: str) -> None:
            super().delete(name)
            deleted.set()

    limits = Limits(beat_s=0.01)
    claims = Claims(Slow(place.path), Guard("here", limits, lambda _: None), limits)
    claims.take(KEY)
    assert writing.wait(10)
    claims.close()
    assert claims._beating is not None
    claims._beating.join(10)
    assert [each.name for each in place.list()] == [f"claims/{KEY}.0"]


@pytest.mark.parametrize("content", [b"", b"garbage", b"../../x", b"f" * 200, bytes(200)])
def test_a_claim_of_nobody_is_void(builder: Callable[[], Claims], place: Folder, content: bytes) -> None:
    place.write(f"claims/{KEY}.0", content)
    second = builder()
    assert not second.take(KEY)
    assert second.free({KEY}) == {KEY}
    assert second.take(KEY)


@pytest.mark.parametrize("name", ["x", f"{'A' * 64}.0", f"{KEY}", f"{KEY}.-1", f"{KEY}.0.tmp", f"{KEY}.99999999"])
def test_other_names_are_no_claims(builder: Callable[[], Claims], place: Folder, name: str) -> None:
    place.write(f"claims/{name}", b"f" * 16)
    assert builder().free({KEY}) == {KEY}


def test_what_builders_write_names_no_machine_and_no_user(builder: Callable[[], Claims], place: Folder) -> None:
    import re

    builder().take(KEY)
    for each in place.list():
        text = each.name + " " + place.read(each.name, 999).decode()
        assert re.fullmatch(r"(claims/a{64}\.0 [0-9a-f]{16})|(builds/[0-9a-f]{16} 0)", text)


def test_builders_begin_with_different_keys(builder: Callable[[], Claims]) -> None:
    keys = [f"{number:064x}" for number in range(100)]
    orders = [builder().shuffled(keys) for _ in range(4)]
    assert all(sorted(order) == keys for order in orders)
    assert len({tuple(order) for order in orders}) == 4
