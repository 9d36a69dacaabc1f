"""How many variants a job holds: seconds of work, no more than a share of what is left."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from nojit.aot.remote.batches import JOB_S, ROUNDS, VARIANTS_MAX, Batches


def filled(count: int, seconds: float, group: str = "g", job_s: float = 5.0) -> Batches[str, int]:
    batches: Batches[str, int] = Batches(job_s)
    for number in range(count):
        batches.put(group, number)
    batches.took(group, seconds)
    return batches


def sizes(batches: Batches[str, int], slots: int) -> list[int]:
    found = []
    while len(batches):
        found.append(len(batches.take(slots)[1]))
    return found


def test_a_job_takes_the_asked_time() -> None:
    assert sizes(filled(1000, 0.5), 4)[0] == 10
    assert sizes(filled(1000, 10.0), 4)[0] == 1
    # a lost job repeats no more than this
    assert sizes(filled(100_000, 0.001), 4)[0] == 64


def test_jobs_shrink_to_single_variants() -> None:
    found = sizes(filled(100, 0.1), 4)
    assert found == sorted(found, reverse=True)
    assert (found[0], found[-1], sum(found)) == (10, 1, 100)


def test_a_thousand_workers_get_work_at_once() -> None:
    assert sum(sizes(filled(12_000, 0.5), 1000)[:1000]) < 6000


def test_a_thousand_workers_get_jobs_that_a_scheduler_can_give() -> None:
    found = sizes(filled(100_000, 0.38, job_s=JOB_S), 1000)
    # 38 s of work for each: about 330 jobs a second
    assert len(found) < 13_000
    assert found.count(1) < 1_300


def test_the_last_jobs_of_a_thousand_workers_hold_single_variants() -> None:
    found = sizes(filled(100_000, 0.38, job_s=JOB_S), 1000)
    assert found[-300:] == [1] * 300
    assert min(found[:-1500]) >= 3


def test_a_job_has_variants_of_one_group_in_their_order() -> None:
    batches = filled(3, 0.1, "a")
    for number in range(3, 8):
        batches.put("b", number)
    taken = [batches.take(1) for _ in range(5)]
    assert [(group, len(calls)) for group, calls in taken] == [("a", 3), ("b", 2), ("b", 1), ("b", 1), ("b", 1)]
    assert [call for _, calls in taken for call in calls] == list(range(8))


def test_what_failed_comes_first_and_alone() -> None:
    batches = filled(10, 0.1)
    batches.put_again("g", [11])
    batches.put_again("g", [])
    assert batches.take(1) == ("g", [11])
    assert len(batches) == 10


def test_an_unknown_group_takes_as_long_as_the_others() -> None:
    batches = filled(1, 1.0)
    for _ in range(50):
        batches.took("g", 3.0)
    assert round(batches.expected_s("other", 2)) == 6


def test_a_few_short_variants_do_not_make_the_next_job_long() -> None:
    batches = filled(1000, 0.5)
    for _ in range(50):
        batches.took("g", 0.5)
    batches.took("g", 0.05)
    batches.took("g", 0.05)
    assert len(batches.take(4)[1]) in (10, 11)


@given(
    groups=st.lists(st.tuples(st.integers(1, 300), st.floats(0.001, 30)), min_size=1, max_size=8),
    slots=st.integers(1, 4000),
    lost=st.sets(st.integers(0, 50)),
)
def test_every_variant_is_in_one_job_of_its_group_and_the_last_jobs_are_short(
    groups: list[tuple[int, float]], slots: int, lost: set[int]
) -> None:
    batches: Batches[int, tuple[int, int]] = Batches(5.0)
    for group, (count, seconds) in enumerate(groups):
        batches.took(group, seconds)
        for number in range(count):
            batches.put(group, (group, number))
    done: list[tuple[int, int]] = []
    job = 0
    while left := len(batches):
        group, calls = batches.take(slots)
        assert calls
        assert {of for of, _ in calls} == {group}
        seconds = groups[group][1]  # type: ignore[call-overload] # a number, as put in
        # no job is longer than asked, nor longer than a share of what is left, or 1.25 seconds for a thousand workers
        assert len(calls) <= max(1, min(VARIANTS_MAX, 5.0 / seconds))
        assert len(calls) <= max(1, left / (ROUNDS * slots), slots / 800 / seconds)
        if job in lost:
            # a failed job comes again, each variant alone
            for call in calls:
                batches.put_again(group, [call])
            assert [batches.take(slots)[1] for _ in calls] == [[call] for call in calls]
        done += calls
        job += 1
    assert sorted(done) == [(group, number) for group, (count, _) in enumerate(groups) for number in range(count)]
