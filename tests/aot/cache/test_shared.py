"""A shared cache: who hits, what is written, and which entries are never used."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from nojit.aot.cache.entry import entry_name, open_entry, seal, split_signed, with_signature
from nojit.aot.cache.store import Folder, Store
from nojit.aot.compile.job_runner import Finished
from nojit.aot.signing.cache_signatures import EntrySigner, EntryVerifier, read_verifier
from nojit.aot.signing.sign import make_key, read_signer
from nojit.aot.variants.variant import CompiledVariant, encode_compiled

from tests.aot.cache.jobs import PLACE, Machine, job, jobs


@pytest.fixture
def machine(tmp_path: Path) -> Callable[..., Machine]:
    """Make a machine with an empty local cache."""
    made: list[Machine] = []

    def make(**mishaps: str) -> Machine:
        made.append(Machine(tmp_path / f"machine{len(made)}", **mishaps))
        return made[-1]

    return make


@pytest.fixture
def place(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "place")


Make = Callable[..., Machine]


def compiled(events: list[Finished]) -> dict[str, CompiledVariant | None]:
    return {event.job.key: event.compiled for event in events}


def entries(place: Folder) -> dict[str, bytes]:
    return {each.name: place.read(each.name, 1 << 20) for each in place.list()}


class TestTiers:
    def test_a_second_machine_compiles_nothing(self, machine: Make, store: Store) -> None:
        first, second = machine(), machine()
        made = first.build(jobs(20), store)
        taken = second.build(jobs(20), store)
        assert compiled(taken) == compiled(made)
        assert second.compiler.compiled() == []
        assert first.use == {"misses": 20, "puts": 20}
        assert second.use == {"shared_hits": 20}
        assert all(event.cached for event in taken)

    def test_the_local_tier_is_first(self, machine: Make, place: Folder) -> None:
        first = machine()
        first.build(jobs(3), place)
        for name in entries(place):
            place.delete(name)
        first.build(jobs(3), place)
        assert first.use == {"local_hits": 3}

    def test_an_entry_that_was_taken_is_local_from_then_on(self, machine: Make, place: Folder) -> None:
        machine().build(jobs(3), place)
        second = machine()
        second.build(jobs(3), place)
        for name in entries(place):
            place.delete(name)
        second.build(jobs(3), place)
        assert second.use == {"local_hits": 3}

    def test_what_was_taken_from_one_place_is_not_used_by_builds_with_another_or_none(
        self, machine: Make, place: Folder, tmp_path: Path
    ) -> None:
        machine().build(jobs(3), place)
        second = machine()
        second.build(jobs(3), place)
        second.build(jobs(2), Folder(tmp_path / "other"))
        assert second.use == {"misses": 2, "puts": 2}
        second.build(jobs(3), None)
        assert second.use == {"local_hits": 2, "misses": 1}

    def test_a_read_only_build_writes_nothing(self, machine: Make, place: Folder) -> None:
        machine().build(jobs(2), place)
        before = entries(place)
        reader = machine()
        reader.build(jobs(4), place, readonly=True)
        assert reader.use == {"shared_hits": 2, "misses": 2}
        assert entries(place) == before
        assert not (place.path / "claims").exists() or not any((place.path / "claims").iterdir())

    def test_a_failed_variant_is_stored_nowhere_and_claimed_by_nobody(self, machine: Make, place: Folder) -> None:
        events = machine(D1="fail").build(jobs(3), place)
        assert [event.job.key for event in events if event.error] == [job(1).key]
        assert set(entries(place)) == {entry_name(job(number).key) for number in (0, 2)}
        second = machine()
        second.build(jobs(3), place)
        assert second.use == {"shared_hits": 2, "misses": 1, "puts": 1}

    def test_a_build_leaves_entries_and_nothing_else(self, machine: Make, store: Store) -> None:
        machine().build(jobs(9), store)
        assert sorted(each.name for each in store.list()) == sorted(entry_name(each.key) for each in jobs(9))

    def test_images_with_line_info_stay_on_their_machine(self, machine: Make, place: Folder) -> None:
        from dataclasses import replace

        twin = replace(job(0), variant=replace(job(0).variant, line_info=True))
        first, second = machine(), machine()
        first.build([twin, job(1)], place)
        assert set(entries(place)) == {entry_name(job(1).key)}
        second.build([twin, job(1)], place)
        assert second.use == {"shared_hits": 1, "misses": 1}


def poison(place: Folder, number: int) -> None:
    """Replace an entry by another image under a right checksum."""
    name = entry_name(job(number).key)
    data = open_entry(job(number).key, split_signed(place.read(name, 1 << 20))[1])
    head, _, image = data.partition(b"\n")
    place.write(name, seal(job(number).key, head + b"\n" + image.replace(b"fake image", b"evil image")))


def swap(place: Folder, number: int) -> None:
    """Give an entry the content of another."""
    place.write(entry_name(job(number).key), place.read(entry_name(job(number + 1).key), 1 << 20))


def truncate(place: Folder, number: int) -> None:
    name = entry_name(job(number).key)
    place.write(name, place.read(name, 1 << 20)[:-3])


def empty(place: Folder, number: int) -> None:
    place.write(entry_name(job(number).key), b"")


def grow(place: Folder, number: int) -> None:
    with place.path_of(entry_name(job(number).key)).open("ab") as file:
        file.truncate(1 << 40)


def link(place: Folder, number: int) -> None:
    path = place.path_of(entry_name(job(number).key))
    path.unlink()
    path.symlink_to("/dev/zero")


def other_arch(place: Folder, number: int) -> None:
    name = entry_name(job(number).key)
    data = open_entry(job(number).key, place.read(name, 1 << 20))
    place.write(name, seal(job(number).key, data.replace(b"sm_90", b"sm_80", 1)))


DAMAGES = (poison, swap, truncate, empty, grow, link)


class TestRefusedEntries:
    @pytest.mark.parametrize("damage", [*DAMAGES, other_arch])
    def test_are_misses_and_are_counted_and_replaced(
        self, machine: Make, place: Folder, damage: Callable[[Folder, int], None]
    ) -> None:
        made = machine().build(jobs(4), place)
        damage(place, 1)
        second, third = machine(), machine()
        assert compiled(second.build(jobs(4), place)) == compiled(made)
        assert second.use == {"shared_hits": 3, "misses": 1, "puts": 1, "refused": 1}
        assert second.reasons[0].startswith(("expected", "damaged"))
        third.build(jobs(4), place)
        assert third.use == {"shared_hits": 4}

    def test_in_the_copies_of_the_local_folder_come_from_the_shared_cache_again(
        self, machine: Make, place: Folder
    ) -> None:
        machine().build(jobs(2), place)
        second = machine()
        second.build(jobs(2), place)
        for path in (second.folder / "cache/shared").rglob("*"):
            if path.is_file():
                path.write_bytes(b"garbage")
        second.build(jobs(2), place)
        assert second.use == {"shared_hits": 2, "refused": 2}

    def test_of_a_place_that_gives_other_garbage_each_time_end_in_a_compile(self, machine: Make, place: Folder) -> None:
        made = machine().build(jobs(1), place)
        reads = iter(range(100))

        class Liar(Folder):
            def read(self, name: str, most: int) -> bytes:
                return super().read(name, most) if "/" not in name[:3] else b"garbage %d" % next(reads)

        second = machine()
        assert compiled(second.build(jobs(1), Liar(place.path))) == compiled(made)
        assert second.use["misses"] == 1
        assert next(reads) < 10


class Keys:
    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir(exist_ok=True)
        made = make_key(folder / name)
        self.signer = EntrySigner(read_signer(Path(made.private)))
        self.verifier: EntryVerifier = read_verifier([Path(made.public)])
        self.public = Path(made.public)


@pytest.fixture
def keys(tmp_path: Path) -> Callable[[str], Keys]:
    pytest.importorskip("securesystemslib")
    return lambda name: Keys(tmp_path / "keys", name)


class TestTrust:
    def test_entries_of_the_key_are_taken(self, machine: Make, store: Store, keys: Callable[[str], Keys]) -> None:
        ours = keys("ours")
        made = machine().build(jobs(3), store, signer=ours.signer)
        second = machine()
        assert compiled(second.build(jobs(3), store, verifier=ours.verifier)) == compiled(made)
        assert second.use == {"shared_hits": 3}

    def test_without_trust_signed_entries_are_taken_too(
        self, machine: Make, place: Folder, keys: Callable[[str], Keys]
    ) -> None:
        machine().build(jobs(3), place, signer=keys("ours").signer)
        second = machine()
        second.build(jobs(3), place)
        assert second.use == {"shared_hits": 3}

    def test_entries_of_another_key_are_misses(self, machine: Make, place: Folder, keys: Callable[[str], Keys]) -> None:
        machine().build(jobs(3), place, signer=keys("theirs").signer)
        second = machine()
        second.build(jobs(3), place, verifier=keys("ours").verifier)
        assert second.use == {"misses": 3, "refused": 3}
        assert "expected a signature by a key in" in second.reasons[0]

    @pytest.mark.parametrize("damage", DAMAGES)
    def test_changed_entries_are_misses(
        self, machine: Make, place: Folder, keys: Callable[[str], Keys], damage: Callable[[Folder, int], None]
    ) -> None:
        ours = keys("ours")
        made = machine().build(jobs(3), place, signer=ours.signer)
        damage(place, 0)
        second = machine()
        assert compiled(second.build(jobs(3), place, verifier=ours.verifier)) == compiled(made)
        assert second.use == {"shared_hits": 2, "misses": 1, "refused": 1}

    def test_every_flipped_bit_of_a_signature_is_a_miss(
        self, machine: Make, place: Folder, keys: Callable[[str], Keys]
    ) -> None:
        from nojit.aot.cache.entry import EntryError

        ours = keys("ours")
        machine().build(jobs(1), place, signer=ours.signer)
        envelope, entry = split_signed(place.read(entry_name(job(0).key), 1 << 20))
        ours.verifier.check(job(0).key, entry, envelope)
        for bit in range(0, 8 * len(envelope), 5):
            flipped = bytearray(envelope)
            flipped[bit // 8] ^= 1 << bit % 8
            with pytest.raises(EntryError):
                ours.verifier.check(job(0).key, entry, bytes(flipped))

    def test_entries_that_this_machine_compiled_need_no_signature(
        self, machine: Make, place: Folder, keys: Callable[[str], Keys]
    ) -> None:
        first = machine()
        first.build(jobs(2), None)
        first.build(jobs(2), place, verifier=keys("ours").verifier)
        assert first.use == {"local_hits": 2}

    def test_a_build_that_trusts_a_key_and_has_none_writes_nothing(
        self, machine: Make, place: Folder, keys: Callable[[str], Keys]
    ) -> None:
        first = machine()
        first.build(jobs(2), place, verifier=keys("ours").verifier)
        assert first.use == {"misses": 2}
        assert entries(place) == {}

    def test_several_keys_may_sign(self, machine: Make, place: Folder, keys: Callable[[str], Keys]) -> None:
        old, new = keys("old"), keys("new")
        machine().build(jobs(2), place, signer=old.signer)
        both = read_verifier([old.public, new.public])
        second = machine()
        second.build(jobs(4), place, signer=new.signer, verifier=both)
        assert second.use == {"shared_hits": 2, "misses": 2, "puts": 2}


def test_a_signature_of_an_entry_is_no_statement_of_a_bundle(keys: Callable[[str], Keys]) -> None:
    from nojit.runtime.errors import BundleTrustError
    from nojit.runtime.trust.claim import read_claim
    from nojit.runtime.trust.envelope import split_envelope

    envelope = keys("ours").signer.sign(job(0).key, b"entry")
    payload, signer, _ = split_envelope(envelope, "here")
    with pytest.raises(BundleTrustError, match="expected an in-toto statement v1 with SLSA provenance v1"):
        read_claim(payload, signer, "ours", "here")


def test_the_entry_of_a_machine_is_that_of_any_other(tmp_path: Path) -> None:
    """Nothing of the machine is in an entry, apart from the time of its compilation."""
    contents = []
    for name in ("one", "two"):
        place = Folder(tmp_path / name / "place")
        Machine(tmp_path / name / "home").build(jobs(2), place)
        contents.append(entries(place))
    assert contents[0] == contents[1]
    text = b"".join([*contents[0].values(), *(name.encode() for name in contents[0])])
    assert str(tmp_path).encode() not in text
    assert PLACE.where.encode() not in text


def test_data_of_an_entry_is_that_of_the_local_cache(machine: Make, place: Folder) -> None:
    first = machine()
    (event,) = first.build(jobs(1), place)
    assert event.compiled is not None
    assert first.cache is not None
    data = encode_compiled(event.compiled, "sm_90")
    assert first.cache.get(job(0).key) == data
    assert entries(place) == {entry_name(job(0).key): seal(job(0).key, data)}


def test_unsigned_entries_are_misses(machine: Make, place: Folder, keys: Callable[[str], Keys]) -> None:
    machine().build(jobs(3), place)
    second = machine()
    second.build(jobs(3), place, verifier=keys("ours").verifier)
    assert second.use == {"misses": 3, "refused": 3}
    assert "got one without a signature" in second.reasons[0]


def test_a_signature_does_not_move_to_another_content(
    machine: Make, place: Folder, keys: Callable[[str], Keys]
) -> None:
    ours = keys("ours")
    machine().build(jobs(1), place, signer=ours.signer)
    name = entry_name(job(0).key)
    envelope, _ = split_signed(place.read(name, 1 << 20))
    poison(place, 0)
    place.write(name, with_signature(place.read(name, 1 << 20), envelope))
    second = machine()
    second.build(jobs(1), place, verifier=ours.verifier)
    assert second.use == {"misses": 1, "refused": 1}
    assert second.reasons == ["expected a signature of this entry, got that of another statement"]


def test_unsigned_copies_of_an_earlier_build_are_not_used(
    machine: Make, place: Folder, keys: Callable[[str], Keys]
) -> None:
    """A poisoned entry that a build without trust copied must not reach one with trust."""
    machine().build(jobs(2), place)
    second = machine()
    second.build(jobs(2), place)
    second.build(jobs(2), place, verifier=keys("ours").verifier)
    assert second.use["misses"] == 2
