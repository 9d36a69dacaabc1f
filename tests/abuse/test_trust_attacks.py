"""What somebody tries who may write bundles where a process looks for them, and holds a key for bundles of another name."""

from __future__ import annotations

import gc
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from nojit.kernels import library
from nojit.runtime import loader
from nojit.runtime.errors import BundleError, BundleTrustError, KernelNotFoundError
from nojit.runtime.trust.envelope import signed_path

from tests.support.bundles import Parts, kernel, target
from tests.support.open_files import open_files
from tests.support.signing import Signer, envelope, make_statement
from tests.support.wheels import put_provider

ACME, OWN, ANY = Signer.of("acme"), Signer.of("own"), Signer.of("any")
ONE = "1" * 64
Put = Callable[..., Path]


def key(signer: Signer, *names: str) -> str:
    """Spell a key that may sign bundles of these names; of any, if there is none."""
    scope = f"bundles = {list(names)}\n" if names else ""
    return f'[[key]]\nname = "{signer.name}"\npublic = """\n{signer.pem}"""\n{scope}'


@pytest.fixture(autouse=True)
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Ask for signatures: acme's key is for its bundles, another for the library's; nothing is found but what a test puts."""
    path = tmp_path / "trusted.toml"

    def trust(*words: str, more: str = "") -> None:
        path.write_text(f"schema = 1\n{''.join(words)}{more}\n", encoding="utf-8")
        path.chmod(0o644)
        library._bundles_of_kernels.cache_clear()

    trust(key(ACME, "acme", "acme-debug"), key(OWN, "nojit-kernels"))
    monkeypatch.setenv("NOJIT_TRUST", "signed")
    monkeypatch.setenv("NOJIT_TRUSTED_KEYS", str(path))
    monkeypatch.delenv("NOJIT_BUNDLES", raising=False)
    monkeypatch.setattr("nojit.runtime.discovery.discover._own_checkout", lambda: None)
    monkeypatch.syspath_prepend(tmp_path / "site")
    return trust


def put(path: Path, *kernels: str, name: str = "acme", signer: Signer = ACME, inputs: str = ONE, **facts: Any) -> Path:
    """Write a bundle and sign it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    parts = Parts.of(*(kernel(each, {"n": "i32"}) for each in kernels or ("add",)), name=name, **facts)
    path.write_bytes(replace(parts, index=replace(parts.index, inputs=inputs)).seal())
    Path(signed_path(str(path))).write_bytes(envelope(make_statement(path), signer))
    return path


def copy_over(source: Path, target: Path) -> Path:
    """Put a bundle and its statement in place of another one."""
    shutil.copy(source, target)
    shutil.copy(signed_path(str(source)), signed_path(str(target)))
    return target


def refused(reason: str, use: Callable[[], object]) -> BundleTrustError:
    with pytest.raises(BundleTrustError) as error:
        use()
    assert error.value.reason == reason
    return error.value


# -- one bundle in place of another ----------------------------------------------------------------------------------


@pytest.mark.parametrize("scoped", [False, True])
@pytest.mark.parametrize("by", ["file", "folder", "name"])
def test_a_signed_bundle_is_none_of_another_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: Callable[..., None], scoped: bool, by: str
) -> None:
    """Nor does a key for bundles of any name help: whoever copied the file holds no key."""
    if not scoped:
        keys(key(ACME), key(OWN))
    acme = put(tmp_path / "acme-1.0-sm_90.nojit")
    victim = put(tmp_path / "site/nojit-kernels-0.1.0-sm_90.nojit", name="nojit-kernels", signer=OWN, version="0.1.0")
    place = {"file": victim, "folder": victim.parent, "name": "nojit-kernels"}[by]
    monkeypatch.setenv("NOJIT_BUNDLES", str(victim.parent))
    assert loader.load(place).kernels == ("add",)
    copy_over(acme, victim)
    if by == "name":
        with pytest.raises(FileNotFoundError, match="found: acme"):
            loader.load(place)
    else:
        error = refused("other-name", lambda: loader.load(place))
        assert str(victim) in str(error)
        assert "call the file acme-1.0-sm_90.nojit" in str(error)


@pytest.mark.parametrize("named", ["acme-2.0-sm_90.nojit", "acme-1.0-sm_80.nojit", "ACME.x-1.0-sm_90.nojit"])
def test_a_file_holds_the_bundle_that_it_is_named_after(tmp_path: Path, named: str) -> None:
    """An older release under the name of a newer one, or another arch's."""
    refused("other-name", lambda: loader.load(put(tmp_path / named)))


def test_the_bundle_of_a_family_has_the_name_of_the_family(tmp_path: Path) -> None:
    on = target("sm_100f")
    assert loader.load(put(tmp_path / "acme-1.0-sm_100f.nojit", on=on)).kernels == ("add",)
    for named in ("acme-1.0-sm_100.nojit", "acme-1.0-sm_120f.nojit"):
        refused("other-name", lambda named=named: loader.load(put(tmp_path / named, on=on)))


@pytest.mark.parametrize("named", ["acme-1.0-sm_90.nojit", "Acme-1.0-sm_90.nojit", "x.nojit", "acme-latest.nojit"])
def test_a_file_of_another_form_of_name_says_nothing(tmp_path: Path, named: str) -> None:
    assert loader.load(put(tmp_path / named)).kernels == ("add",)


@pytest.mark.parametrize("policy", ["any", "signed"])
def test_a_program_says_what_a_path_must_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str) -> None:
    monkeypatch.setenv("NOJIT_TRUST", policy)
    path = put(tmp_path / "kernels.nojit")
    assert loader.load(path, name="Acme").kernels == ("add",)
    with pytest.raises(BundleError, match="expected bundle other"):
        loader.load(path, name="other")
    with pytest.raises(BundleError, match="expected bundle other"):
        loader.load(path.parent, name="other")


@pytest.mark.parametrize("name", ["own-kernels", "Own_Kernels"])
@pytest.mark.parametrize("as_file", [False, True])
def test_the_current_folder_hides_no_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: Callable[..., None], name: str, as_file: bool
) -> None:
    """A folder or file that is called as what is installed comes first, and must hold what the name asks for."""
    keys(key(ACME, "acme"), key(OWN, "own-kernels"))
    put(put_provider(tmp_path / "site", "own-kernels") / "b.nojit", name="own-kernels", signer=OWN)
    here = put(tmp_path / "here/acme-1.0-sm_90.nojit").parent
    monkeypatch.chdir(here)
    assert loader.load(name).kernels == ("add",)
    place = here / name if as_file else here / name / "b.nojit"
    put(place)
    refused("other-name", lambda: loader.load(name))
    # who spells a path means it
    assert loader.load(f"./{name}").kernels == loader.load(Path(name)).kernels == ("add",)
    assert loader.load("../here").kernels == ("add",)
    put(place, name="own-kernels", signer=OWN)
    assert loader.load(name).kernels == ("add",)


# -- wheels ----------------------------------------------------------------------------------------------------------


def test_a_wheel_that_calls_itself_another_name_serves_nothing_for_it(tmp_path: Path) -> None:
    """Entry points and distributions are called whatever somebody wants."""
    put(put_provider(tmp_path / "site", "evil", "nojit-kernels") / "b.nojit", "vector_add")
    refused("other-name", lambda: loader.load("nojit-kernels"))
    refused("other-name", lambda: library.get("vector_add"))
    # by the distribution too, which nobody trusts for a name
    refused("other-name", lambda: loader.load("evil"))


@pytest.mark.parametrize("label", ["sm90", "gfx942"])
def test_a_provider_serves_for_the_name_that_it_provides(label: str, tmp_path: Path) -> None:
    put(put_provider(tmp_path / "site", f"acme-{label}", "acme") / "acme-1.0-sm_90.nojit")
    for name in ("acme", "Acme", f"acme-{label}"):
        assert loader.load(name).kernels == ("add",)
    put(put_provider(tmp_path / "site", f"other-{label}", "other") / "acme-1.0-sm_90.nojit")
    refused("other-name", lambda: loader.load(f"other-{label}"))


def test_a_wheel_of_several_bundles_needs_a_key_for_all_their_names(tmp_path: Path, keys: Callable[..., None]) -> None:
    package = put_provider(tmp_path / "site", "gathered")
    put(package / "acme-1.0-sm_90.nojit")
    refused("other-name", lambda: loader.load("gathered"))
    keys(key(ACME))
    assert "list both gathered and acme" in str(refused("other-name", lambda: loader.load("gathered")))
    keys(key(ACME, "acme", "Gathered"))
    assert loader.load("gathered").kernels == ("add",)
    # what was taken back under the name that is asked for is taken back
    keys(key(ACME, "acme", "gathered"), more="[minimum]\ngathered = 7")
    refused("rolled-back", lambda: loader.load("gathered"))


# -- operators -------------------------------------------------------------------------------------------------------


def test_a_bundle_of_another_name_serves_no_operator_of_the_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: Callable[..., None]
) -> None:
    acme = put(tmp_path / "acme.nojit", "vector_add", "of_acme")
    monkeypatch.setenv("NOJIT_BUNDLES", str(acme))
    refused("other-name", lambda: library._from_bundles("vector_add"))
    # operators of other packages have kernels in bundles of any name
    assert library._from_bundles("of_acme").name == "of_acme"
    # without a restriction a key is for the names that bundles have, and for no other
    keys(key(ACME))
    refused("other-name", lambda: library._from_bundles("vector_add"))
    keys(key(ACME, "acme", "nojit-kernels"))
    assert library._from_bundles("vector_add").name == "vector_add"


def test_the_librarys_own_serves_whatever_lies_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = put(tmp_path / "own.nojit", "vector_add", name="nojit-kernels", signer=OWN)
    monkeypatch.setenv("NOJIT_BUNDLES", str(own))
    assert library._from_bundles("vector_add").name == "vector_add"
    # signed by whom it may not be
    put(tmp_path / "own.nojit", "vector_add", name="nojit-kernels", signer=ACME)
    refused("key-scope", lambda: library._from_bundles("vector_add"))


def test_a_foreign_wheel_serves_operators_what_it_may_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    put(put_provider(tmp_path / "site", "acme") / "b.nojit", "vector_add", "of_acme")
    assert library._from_bundles("of_acme").name == "of_acme"
    with pytest.raises(KernelNotFoundError, match=r"passed over: expected bundle nojit-kernels, .* of wheel acme"):
        library._from_bundles("vector_add")
    assert "passed over: expected bundle nojit-kernels" in caplog.text


# -- twins -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["any", "signed"])
@pytest.mark.parametrize("called", ["other-debug 1.0", "nojit-kernels-debug 1.0", "acme-debug 0.9"])
def test_a_twin_of_another_bundle_stands_in_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: Callable[..., None], policy: str, called: str
) -> None:
    """What a twin says that it was made of, anybody can say."""
    from nojit.runtime.discovery.debug_twins import twin_inputs

    keys(key(ACME), key(OWN))
    monkeypatch.setenv("NOJIT_TRUST", policy)
    plain = put(tmp_path / "a.nojit", inputs=ONE)
    name, version = called.split()
    twin = put(tmp_path / "twins/t.nojit", name=name, version=version, inputs=twin_inputs(ONE), signer=OWN)
    monkeypatch.setenv("NOJIT_DEBUG_INFO", str(twin))
    with pytest.raises(BundleError, match=rf"expected acme-debug 1.0, the twin of .*, got {called} - at {twin}"):
        loader.load(plain)


@pytest.mark.parametrize(
    ("scope", "reason"),
    [((), ""), (("acme", "acme-debug"), ""), (("acme-debug",), "key-scope"), (("acme",), "key-scope")],
)
def test_a_twin_needs_a_key_for_both_names(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    keys: Callable[..., None],
    scope: tuple[str, ...],
    reason: str,
) -> None:
    from nojit.runtime.discovery.debug_twins import twin_inputs

    keys(key(ACME, "acme"), key(OWN, *scope))
    plain = put(tmp_path / "a.nojit", inputs=ONE)
    twin = put(tmp_path / "twins/t.nojit", name="acme-debug", inputs=twin_inputs(ONE), signer=OWN)
    monkeypatch.setenv("NOJIT_DEBUG_INFO", str(twin))
    if reason:
        refused(reason, lambda: loader.load(plain))
    else:
        assert [file.path for file in loader.load(plain).files] == [str(twin)]


# -- between a look and a use ----------------------------------------------------------------------------------------

# puts another file in place of the one that is looked at, as soon as it is opened a second time
SWAP = """
import os, sys
victim, evil, opened = sys.argv[1], sys.argv[2], 0

def watch(event, args):
    global opened
    if event == "open" and args[0] == victim:
        opened += 1
        if opened == 2:
            os.replace(evil, victim)

sys.addaudithook(watch)
{use}
print(opened, used.kernels if hasattr(used, "kernels") else used._bundles.bundles[0].images.file.kernels)
"""
USES = {
    "load": "from nojit import runtime\nused = runtime.load('acme')",
    "operators": "from nojit.kernels import library\nused = library.get('add')",
    "operators of a foreign wheel": "from nojit.kernels import library\nused = library.get('add')",
}


@pytest.mark.parametrize("policy", ["any", "signed"])
@pytest.mark.parametrize("use", USES)
def test_what_is_used_is_what_was_looked_at(tmp_path: Path, policy: str, use: str) -> None:
    """A file is opened once: whoever replaces it later changes nothing of what was found under its name."""
    folder = put_provider(tmp_path / "site", "acme") if use.endswith("wheel") else tmp_path / "found"
    victim = put(folder / "a.nojit", "add")
    # as right as the other one, but for what it is called
    evil = put(tmp_path / "evil.nojit", "add", "of_another", name="nojit-kernels", signer=OWN)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NOJIT_BUNDLES")}
    environment |= {"NOJIT_TRUST": policy, "PYTHONPATH": str(tmp_path / "site")}
    if not use.endswith("wheel"):
        environment["NOJIT_BUNDLES"] = str(victim.parent)
    code = SWAP.replace("{use}", USES[use])
    words = [sys.executable, "-c", code, str(victim), str(evil)]
    ran = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert ran.stdout == "1 ('add',)\n", ran.stderr


# -- files of keys ---------------------------------------------------------------------------------------------------


def test_a_file_of_keys_that_others_can_write_is_refused(tmp_path: Path) -> None:
    bundle, trusted = put(tmp_path / "a.nojit"), Path(os.environ["NOJIT_TRUSTED_KEYS"])
    for mode in (0o666, 0o664, 0o646, 0o620, 0o602):
        trusted.chmod(mode)
        error = refused("policy", lambda: loader.load(bundle))
        # said once, not within another refusal
        assert error.what == f"expected a file that only its owner can write: chmod go-w {trusted}"
        assert (error.got, error.where) == (stat.filemode(0o100000 | mode), str(trusted))
    for mode in (0o644, 0o600, 0o444, 0o400):
        trusted.chmod(mode)
        assert loader.load(bundle).kernels == ("add",)


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o757])
@pytest.mark.parametrize("depth", [0, 1])
def test_so_is_one_in_a_folder_that_others_can_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, depth: int
) -> None:
    """Who can rename files in a folder can put another one there."""
    bundle, folder = put(tmp_path / "a.nojit"), tmp_path / "one" / "two"
    folder.mkdir(parents=True)
    trusted = shutil.copy(os.environ["NOJIT_TRUSTED_KEYS"], folder / "trusted.toml")
    monkeypatch.setenv("NOJIT_TRUSTED_KEYS", str(trusted))
    open_folder = folder.parents[depth - 1] if depth else folder
    open_folder.chmod(mode)
    error = refused("policy", lambda: loader.load(bundle))
    assert f"expected a folder that only its owner can write: chmod go-w {open_folder}, got d" in str(error)
    # as /tmp is: there everybody renames their own files only
    open_folder.chmod(mode | 0o1000)
    assert loader.load(bundle).kernels == ("add",)


@pytest.mark.parametrize("hops", [1, 2])
def test_so_is_one_that_a_link_in_such_a_folder_leads_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hops: int
) -> None:
    """Each link of a chain counts, also one that neither the name nor the file it leads to tells of."""
    bundle, trusted = put(tmp_path / "a.nojit"), Path(os.environ["NOJIT_TRUSTED_KEYS"])
    (tmp_path / "open").mkdir()
    (tmp_path / "open/link").symlink_to(f"../{trusted.name}")
    (tmp_path / "outer").symlink_to("open/link")
    monkeypatch.setenv("NOJIT_TRUSTED_KEYS", str(tmp_path / ("open/link" if hops == 1 else "outer")))
    assert loader.load(bundle).kernels == ("add",)
    (tmp_path / "open").chmod(0o777)
    assert str(tmp_path / "open") in str(refused("policy", lambda: loader.load(bundle)))
    (tmp_path / "open/link").unlink()
    (tmp_path / "open").chmod(0o755)
    (tmp_path / "open/link").symlink_to("link")
    assert "symbolic links" in str(refused("policy", lambda: loader.load(bundle)))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize("what", ["file", "folder", "link"])
def test_so_is_one_of_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    bundle, folder = put(tmp_path / "a.nojit"), tmp_path / "folder"
    folder.mkdir()
    shutil.copy(os.environ["NOJIT_TRUSTED_KEYS"], folder / "file")
    (folder / "link").symlink_to("file")
    monkeypatch.setenv("NOJIT_TRUSTED_KEYS", str(folder / "link"))
    assert loader.load(bundle).kernels == ("add",)
    given = folder if what == "folder" else folder / what
    os.chown(given, 54321, 54321, follow_symlinks=False)
    error = refused("policy", lambda: loader.load(bundle))
    assert f"expected a {what} of root, of user 0 or of the owner of nojit's files" in str(error)
    assert f"got one of user 54321 - at {given}" in str(error)


def test_on_a_read_only_mount_nobody_can_write_whatever_the_mode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ConfigMap of Kubernetes lies in a folder of mode 0777, behind a link."""
    bundle, mount = put(tmp_path / "a.nojit"), tmp_path / "mount"
    (mount / "..data").mkdir(parents=True)
    shutil.copy(os.environ["NOJIT_TRUSTED_KEYS"], mount / "..data/trusted.toml")
    (mount / "trusted.toml").symlink_to("..data/trusted.toml")
    monkeypatch.setenv("NOJIT_TRUSTED_KEYS", str(mount / "trusted.toml"))
    mount.chmod(0o777)
    refused("policy", lambda: loader.load(bundle))
    plain = os.statvfs

    def statvfs(place: str) -> Any:
        inside = Path(place).is_relative_to(mount)
        return SimpleNamespace(f_flag=os.ST_RDONLY) if inside else plain(place)

    monkeypatch.setattr(os, "statvfs", statvfs)
    assert loader.load(bundle).kernels == ("add",)
    # what leads there still counts
    tmp_path.chmod(0o777)
    assert f"chmod go-w {tmp_path}" in str(refused("policy", lambda: loader.load(bundle)))


def test_what_is_refused_stays_open_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: Callable[..., None]
) -> None:
    for number in range(3):
        put(tmp_path / f"found/{number}.nojit", f"k{number}")
    monkeypatch.setenv("NOJIT_BUNDLES", str(tmp_path / "found"))
    with loader.load("acme"):
        assert len(open_files(tmp_path)) == 3
    assert open_files(tmp_path) == []
    put(tmp_path / "found/1.nojit", "k1", signer=OWN)
    for _ in range(2):
        refused("key-scope", lambda: loader.load("acme"))
        with pytest.raises(FileNotFoundError):
            loader.load("acne")
    (tmp_path / "found/2.nojit").write_bytes(b"no bundle")
    with pytest.raises(BundleError):
        loader.load("acme")
    gc.collect()
    assert open_files(tmp_path) == []


def test_a_pipe_for_a_file_of_keys_is_refused_and_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setenv("NOJIT_TRUSTED_KEYS", str(tmp_path / "pipe"))
    bundle = put(tmp_path / "a.nojit")
    assert (
        refused("policy", lambda: loader.load(bundle)).what == "expected a TOML file of trusted keys in a regular file"
    )
    monkeypatch.setenv("NOJIT_TRUSTED_KEYS", str(tmp_path / ("x" * 300)))
    assert "File name too long" in str(refused("policy", lambda: loader.load(bundle)))


# -- what says nothing -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variable", ["NOJIT_TRUST", "NOJIT_TRUSTED_KEYS"])
def test_a_variable_that_is_set_says_something(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    """``NOJIT_TRUST=$POLICY`` where nobody set POLICY must not load everything."""
    bundle = put(tmp_path / "a.nojit")
    monkeypatch.setenv(variable, "")
    assert f"got '' - at {variable}" in str(refused("policy", lambda: loader.load(bundle)))
