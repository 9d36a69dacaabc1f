"""Bundles as users open them: files, folders, kernels by name; and what opening costs and needs."""

from __future__ import annotations

import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from nojit import runtime
from nojit.runtime import _core, loader
from nojit.runtime.errors import (
    ArgumentError,
    BundleError,
    BundleFormatError,
    BundleIntegrityError,
    BundleTrustError,
    KernelNotFoundError,
    NoMatchingVariantError,
)

from tests.fakecuda import FakeCuda
from tests.support.bundles import kernel, make_bundle, target
from tests.support.open_files import open_files

ROOT = Path(__file__).resolve().parents[2]
ADD = kernel("add", {"n": "i32"})
MUL = kernel("mul", {"n": "i32"}, configs=[{"num_warps": 4}, {"num_warps": 8}])


def test_a_file_is_a_bundle(tmp_path: Path) -> None:
    path = make_bundle(tmp_path / "a.nojit", ADD, MUL)
    with loader.load(path) as bundle:
        assert bundle.kernels == ("add", "mul")
        assert [file.path for file in bundle.files] == [str(path)]
        assert bundle.kernel("add") is bundle.kernel("add")
        assert bundle.kernel("add").name == "add"
        assert repr(bundle.kernel("add")) == "Kernel('add', sm_90a)"
        assert "2 kernels" in repr(bundle)
    assert loader.load(str(path)).kernels == ("add", "mul")


def test_a_folder_is_every_bundle_in_it(tmp_path: Path) -> None:
    make_bundle(tmp_path / "a.nojit", ADD, name="one")
    make_bundle(tmp_path / "b.nojit", MUL, name="two")
    (tmp_path / "a.report.json").write_text("{}")
    assert loader.load(tmp_path).kernels == ("add", "mul")


def test_bundles_for_several_archs_merge(tmp_path: Path) -> None:
    for arch in ("sm_80", "sm_90a"):
        on = target(arch)
        make_bundle(tmp_path / f"{arch}.nojit", kernel("add", {"n": "i32"}, on=on), on=on)
    bundle = loader.load(tmp_path)
    assert repr(bundle.kernel("add")) == "Kernel('add', sm_80, sm_90a)"
    assert bundle.kernel("add").explain(1, arch="sm_86").chosen
    with pytest.raises(NoMatchingVariantError, match="bundle has sm_80, sm_90a; device is sm_100"):
        bundle.kernel("add").explain(1, arch="sm_100")


@pytest.mark.parametrize("name", ["one", "two"])
def test_one_kernel_in_two_bundles_for_one_arch_is_refused(tmp_path: Path, name: str) -> None:
    first = make_bundle(tmp_path / "a.nojit", ADD, name="one")
    second = make_bundle(tmp_path / "b.nojit", ADD, MUL, name=name)
    with pytest.raises(
        BundleError,
        match=f"expected one bundle with kernel add for sm_90a; move the other elsewhere, got {first} and {second}",
    ):
        loader.load(tmp_path)


def test_the_newest_version_of_a_folder_wins_with_a_note(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    old = make_bundle(tmp_path / "acme-0.9-sm_90.nojit", ADD, MUL, name="acme", version="0.9")
    new = make_bundle(tmp_path / "acme-0.10-sm_90.nojit", ADD, name="acme", version="0.10")
    on = target("sm_80")
    make_bundle(
        tmp_path / "acme-0.9-sm_80.nojit", kernel("mul", {"n": "i32"}, on=on), name="acme", version="0.9", on=on
    )
    bundle = loader.load(tmp_path)
    # what the new version no longer has is not taken from the old one
    assert bundle.kernels == ("add", "mul")
    assert repr(bundle.kernel("mul")) == "Kernel('mul', sm_80)"
    assert str(new) in [file.path for file in bundle.files]
    reason = f"acme-0.10-sm_90.nojit, a newer version, lies beside it; nojit clean {tmp_path} deletes the older"
    assert bundle.passed_over == ((str(old), reason),)
    assert caplog.messages == [f"passed over {old}: {reason}"]
    assert loader.load(old).kernels == ("add", "mul")


def test_nothing_there_is_a_file_not_found(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        loader.load(tmp_path / "a.nojit")
    with pytest.raises(FileNotFoundError, match=r"expected \*\.nojit files in .*, found none"):
        loader.load(tmp_path)


@pytest.fixture
def named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Two folders of ``NOJIT_BUNDLES`` that both hold bundles of one name; nothing else is found."""
    folders = [tmp_path / "first", tmp_path / "second"]
    for folder in folders:
        folder.mkdir()
    monkeypatch.setenv("NOJIT_BUNDLES", ":".join(map(str, folders)))
    monkeypatch.setattr("nojit.runtime.discovery.discover.providers", list)
    monkeypatch.setattr("nojit.runtime.discovery.discover._own_checkout", lambda: None)
    monkeypatch.chdir(tmp_path)
    return folders


def test_a_name_is_every_bundle_of_that_name_the_first_wins(named: list[Path], fakecuda: FakeCuda) -> None:
    first, second = named
    used = make_bundle(first / "a.nojit", ADD, name="acme-kernels")
    passed = make_bundle(second / "a.nojit", ADD, MUL, name="acme-kernels", version="2.0")
    on = target("sm_80")
    make_bundle(second / "b.nojit", kernel("add", {"n": "i32"}, on=on), name="acme-kernels", on=on)
    make_bundle(second / "c.nojit", kernel("other", {"n": "i32"}), name="other")
    bundle = loader.load("Acme.Kernels")
    assert bundle.kernels == ("add", "mul")
    assert repr(bundle.kernel("add")) == "Kernel('add', sm_90a, sm_80)"
    assert bundle.passed_over == ((str(passed), f"add of {used} comes first"),)
    add = bundle.kernel("add")
    # the first of equals, and of several archs the one that fits best
    assert str(used) in str(add._bundles.bundle_for(90))
    assert "b.nojit" in str(add._bundles.bundle_for(86))
    add[(1,)](1)
    assert fakecuda.launch_count() == 1
    assert loader.load(first).passed_over == ()


def test_the_newest_version_wins_in_each_folder_of_a_name(named: list[Path]) -> None:
    for folder, versions in zip(named, (("1.0", "1.1"), ("2.0", "3.0")), strict=True):
        for version in versions:
            make_bundle(folder / f"{version}.nojit", ADD, name="acme-kernels", version=version)
    bundle = loader.load("acme-kernels")
    # the folder that comes first, not the highest version
    assert [file.index.version for file in bundle.files] == ["1.1", "3.0"]
    assert str(named[0] / "1.1.nojit") in str(bundle.kernel("add")._bundles.bundle_for(90))


def test_what_is_on_disk_is_no_name(named: list[Path], tmp_path: Path) -> None:
    make_bundle(named[0] / "a.nojit", ADD, name="acme-kernels")
    (tmp_path / "acme-kernels").mkdir()
    make_bundle(tmp_path / "acme-kernels" / "x.nojit", MUL, name="mine")
    assert loader.load("acme-kernels").kernels == ("mul",)


def test_a_folder_without_bundles_hides_a_name(named: list[Path], tmp_path: Path) -> None:
    make_bundle(named[0] / "a.nojit", ADD, name="acme-kernels")
    (tmp_path / "acme-kernels").mkdir()
    message = (
        r"expected \*\.nojit files in acme-kernels, found none; acme-kernels names that folder, and no installed bundle"
    )
    with pytest.raises(FileNotFoundError, match=message):
        loader.load("acme-kernels")
    with pytest.raises(FileNotFoundError, match=r"found none: build some with nojit build$"):
        loader.load("./acme-kernels")


@pytest.mark.parametrize("path", ["./acme-kernels", "some/acme-kernels", "acme-kernels.nojit", Path("acme-kernels")])
def test_what_is_spelled_as_a_path_is_no_name(named: list[Path], path: str | Path) -> None:
    make_bundle(named[0] / "a.nojit", ADD, name="acme-kernels")
    with pytest.raises(FileNotFoundError, match="No such file"):
        loader.load(path)


def test_a_name_of_an_unsigned_bundle_is_refused_others_are_let_be(
    named: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("cryptography")
    from nojit.runtime.trust.envelope import signed_path

    from tests.support.signing import Signer, envelope, make_statement, trusted_keys

    release = Signer.of("release")
    monkeypatch.setenv("NOJIT_TRUST", "signed")
    monkeypatch.setenv("NOJIT_TRUSTED_KEYS", str(trusted_keys(tmp_path / "trusted.toml", release)))
    signed = make_bundle(named[0] / "a.nojit", ADD, name="acme-kernels")
    Path(signed_path(str(signed))).write_bytes(envelope(make_statement(signed), release))
    make_bundle(named[1] / "b.nojit", MUL, name="other")
    assert loader.load("acme-kernels").kernels == ("add",)
    with pytest.raises(BundleTrustError, match="expected a signed statement"):
        loader.load("other")


def test_an_unknown_name_says_which_there_are(named: list[Path]) -> None:
    for folder in named:
        make_bundle(folder / "a.nojit", ADD, name="acme-kernels")
    with pytest.raises(FileNotFoundError, match="got 'acme-kernel'; did you mean 'acme-kernels'"):
        loader.load("acme-kernel")


@pytest.mark.parametrize("place", ["nope", "damaged.nojit"])
def test_an_error_shows_none_that_was_handled(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "damaged.nojit").write_bytes(b"no bundle")
    with pytest.raises((FileNotFoundError, BundleFormatError)) as caught:
        loader.load(place)
    assert "NotADirectoryError" not in "".join(traceback.format_exception(caught.value))
    assert caught.value.__context__ is None


def test_a_path_costs_no_metadata_of_packages(tmp_path: Path) -> None:
    path = make_bundle(tmp_path / "a.nojit", ADD)
    # a checkout's own finder brings some of it before
    code = (
        "import sys; before = set(sys.modules); from nojit import runtime; "
        "runtime.load(sys.argv[1]).kernel('add'); print(*(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    brought = set(done.stdout.split())
    assert "nojit.runtime.loader" in brought
    assert not {"importlib.metadata", "nojit.runtime.discovery.discover", "pathlib"} & brought


def test_a_launch_brings_nothing_that_it_does_not_need(tmp_path: Path, fakecuda: FakeCuda) -> None:
    path = make_bundle(
        tmp_path / "a.nojit",
        kernel(
            "add",
            {"n": "i32", "BLOCK": "constexpr"},
            grid=["cdiv(n, BLOCK)"],
            configs=[{"BLOCK": 64, "requires": "n > 3"}],
        ),
    )
    code = (
        "import sys; before = set(sys.modules); from nojit import runtime; "
        "runtime.load(sys.argv[1]).kernel('add')(7); print(*(set(sys.modules) - before))"
    )
    brought = set(run(code, path).split())
    assert "nojit.runtime.first_call.plans" in brought
    # what reads JSON and expressions, what says why a variant does not serve, what names a broken rule, classes that nobody asks for
    others = (
        "table.parts",
        "table.tuning",
        "expr",
        "explain",
        "fallback",
        "discovery",
        "trust",
        "bundle.cubin",
        "tuning",
        "base.strict_json",
        "types",
    )
    assert not {f"nojit.runtime.{name}" for name in others} & brought


# nothing of them takes long: the one is built in, the other is in every module
CHEAP = {"__future__", "_operator"}


@pytest.mark.skipif(not _core.finds_zstd(), reason="without libzstd, a package decompresses")
@pytest.mark.parametrize("loads", ["runtime.load(sys.argv[1]).kernel('add')(7)", "runtime.load(sys.argv[1]).preload()"])
def test_a_first_launch_imports_nothing_of_the_standard_library(tmp_path: Path, fakecuda: FakeCuda, loads: str) -> None:
    add = kernel("add", {"n": "i32", "BLOCK": "constexpr"}, grid=["cdiv(n, BLOCK)"], configs=[{"BLOCK": 64}])
    path = make_bundle(tmp_path / "a.nojit", add)
    code = (
        "import os, sys; sys.path.insert(0, sys.argv[2]); before = set(sys.modules); from nojit import runtime; "
        f"{loads}; print(*(set(sys.modules) - before))"
    )
    brought = run_bare(code, path, installed(tmp_path / "site"))
    assert {name for name in brought.split() if not name.startswith("nojit")} <= CHEAP


def installed(folder: Path) -> Path:
    """Lay the runtime out as a wheel does."""
    (folder / "nojit").mkdir(parents=True)
    for file in (ROOT / "package").glob("*.py"):
        (folder / "nojit" / file.name).symlink_to(file)
    (folder / "nojit" / "runtime").symlink_to(ROOT / "runtime")
    return folder


def run_bare(code: str, *arguments: object) -> str:
    """Run code in a process without `site`, so that no `.pth` file imports anything."""
    command = [sys.executable, "-S", "-c", code, *map(str, arguments)]
    return subprocess.check_output(command, text=True)


def test_a_broken_file_closes_the_others(tmp_path: Path) -> None:
    make_bundle(tmp_path / "a.nojit", ADD)
    (tmp_path / "b.nojit").write_bytes(b"no bundle")
    with pytest.raises(BundleFormatError, match=r"b\.nojit"):
        loader.load(tmp_path)
    assert open_files(tmp_path) == []


def test_an_unknown_kernel_names_the_nearest(tmp_path: Path) -> None:
    bundle = loader.load(make_bundle(tmp_path / "a.nojit", ADD, MUL))
    with pytest.raises(
        KernelNotFoundError, match=r"expected one of 2 kernels, got 'ad'; did you mean 'add'\? - at .*a\.nojit"
    ):
        bundle.kernel("ad")
    with pytest.raises(
        KernelNotFoundError, match=r"expected one of 2 kernels, got 'softmax'; there are add, mul - at .*a\.nojit"
    ):
        bundle.kernel("softmax")


def test_threads_get_the_same_kernel(tmp_path: Path) -> None:
    bundle = loader.load(make_bundle(tmp_path / "a.nojit", ADD))
    barrier, found = threading.Barrier(8), []

    def run() -> None:
        barrier.wait()
        found.append(bundle.kernel("add"))

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(one) for one in found}) == 1


def test_opening_and_explaining_touch_no_driver(tmp_path: Path, fakecuda: FakeCuda) -> None:
    bundle = loader.load(make_bundle(tmp_path / "a.nojit", ADD, MUL))
    assert bundle.kernel("mul").explain(1, num_warps=8).chosen
    assert fakecuda.log() == []


def test_preload_loads_what_fits_the_device(tmp_path: Path, fakecuda: FakeCuda) -> None:
    make_bundle(tmp_path / "a.nojit", ADD, MUL)
    make_bundle(tmp_path / "b.nojit", kernel("old", {"n": "i32"}, on=target("sm_80")), on=target("sm_80"))
    bundle = loader.load(tmp_path)
    assert bundle.preload() == 3
    assert fakecuda.calls("cuLibraryLoadData") == 3
    assert bundle.preload(["mul"], device=1) == 2
    assert fakecuda.calls("cuLibraryLoadData") == 3
    with pytest.raises(NoMatchingVariantError, match="bundle has sm_80; device is sm_90"):
        bundle.preload(["old"])
    with pytest.raises(KernelNotFoundError):
        bundle.preload(["none"])
    with pytest.raises(ArgumentError, match="expected the names of kernels, or None for all, got str 'mul'"):
        bundle.preload("mul")


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda bundle: bundle.preload(99), "expected the names of kernels, or None for all, got int 99"),
        (lambda bundle: bundle.preload([3]), "expected the name of a kernel, got int 3"),
        (lambda bundle: bundle.kernel(["mul"]), "expected the name of a kernel, got list"),
        (lambda bundle: bundle.preload(device="cuda:0"), "expected the ordinal of a device.*got str 'cuda:0'"),
        (lambda bundle: bundle.kernel("mul").preload(True), "expected the ordinal of a device.*got bool True"),
        (lambda bundle: bundle.kernel("mul").variants(1.0), "expected the ordinal of a device.*got float 1.0"),
        (lambda bundle: bundle.kernel("mul").fits("0"), "expected the ordinal of a device.*got str '0'"),
        (lambda bundle: bundle.preload(device=2**31), "expected the ordinal of a device.*got int 2147483648"),
        (
            lambda bundle: bundle.kernel("mul").variants(2**63),
            "expected the ordinal of a device.*got int 9223372036854775808",
        ),
        (lambda bundle: bundle.preload(only=0), "only: expected a dict of values by name, got int 0"),
        (lambda bundle: bundle.preload(only={"num_warps": []}), r"expected a value of num_warps, or several, got \[\]"),
    ],
)
@pytest.mark.usefixtures("fakecuda")
def test_arguments_of_wrong_types_are_named(
    tmp_path: Path, ask: Callable[[loader.Bundle], object], message: str
) -> None:
    with pytest.raises(ArgumentError, match=message):
        ask(loader.load(make_bundle(tmp_path / "a.nojit", kernel("mul", {"n": "i32"}), on=target("sm_90a"))))


def test_preload_refuses_a_device_that_nothing_fits(tmp_path: Path, fakecuda: FakeCuda) -> None:
    old = kernel("old", {"n": "i32"}, on=target("sm_80"))
    bundle = loader.load(make_bundle(tmp_path / "b.nojit", old, on=target("sm_80")))
    for only in (None, {"num_warp": 4}):
        with pytest.raises(NoMatchingVariantError, match="bundle has sm_80; device is sm_90"):
            bundle.preload(only=only)
    assert bundle.preload([]) == 0
    assert loader.load(make_bundle(tmp_path / "c.nojit", on=target("sm_80"))).preload() == 0
    assert fakecuda.calls("cuLibraryLoadData") == 0


def test_preload_may_be_narrowed_to_values(tmp_path: Path, fakecuda: FakeCuda) -> None:
    bundle = loader.load(make_bundle(tmp_path / "a.nojit", ADD, MUL, group_images=1))
    warps = dict(bundle.kernel("mul").variants().configs[0].options)["num_warps"]
    assert bundle.preload(only={"num_warps": warps}) == 2
    assert bundle.preload(only={"num_warps": [warps, 8]}) == 3
    with pytest.raises(ArgumentError, match=r"only: expected .*num_warps.*, got 'num_warp'; did you mean 'num_warps'"):
        bundle.preload(only={"num_warp": 4})
    with pytest.raises(ArgumentError, match="only: expected num_warps to be 4, 8, got True"):
        bundle.preload(["mul"], only={"num_warps": True})


def test_what_is_loaded_outlives_the_bundle(tmp_path: Path, fakecuda: FakeCuda) -> None:
    bundle = loader.load(make_bundle(tmp_path / "a.nojit", MUL, group_images=1))
    mul = bundle.kernel("mul")
    mul[(1,)](1)
    bundle.close()
    mul[(1,)](2)
    assert fakecuda.launch_count() == 2
    with pytest.raises(ValueError, match="bundle is closed"):
        mul[(1,)](1, num_warps=8)


def test_a_flipped_image_never_reaches_the_driver(tmp_path: Path, fakecuda: FakeCuda) -> None:
    path = make_bundle(tmp_path / "a.nojit", ADD)
    content = bytearray(path.read_bytes())
    content[-20] ^= 1
    path.write_bytes(content)
    with pytest.raises(BundleIntegrityError, match="SHA-256"):
        loader.load(path).kernel("add")[(1,)](1)
    assert fakecuda.calls("cuLibraryLoadData") == 0


def test_expressions_that_no_call_can_feed_are_a_bundle_error(tmp_path: Path, fakecuda: FakeCuda) -> None:
    lost = kernel("lost", {"n": "i32"}, grid=["cdiv(m, 2)"])
    odd = kernel("odd", {"n": "i32"}, configs=[{"num_warps": 4, "requires": "n + m == 2"}])
    bundle = loader.load(make_bundle(tmp_path / "a.nojit", lost, odd))
    for name in bundle.kernels:
        with pytest.raises(BundleError, match="expected an expression over the kernel's params, got unknown name 'm'"):
            bundle.kernel(name)(1)
    assert fakecuda.launch_count() == 0


# what importing costs and brings


def run(code: str, *arguments: object) -> str:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("statement", ["import nojit.runtime", "from nojit.runtime import load, Kernel, healthy"])
def test_importing_brings_no_framework_and_no_driver(statement: str) -> None:
    loaded = run(f"{statement}; import sys; print(*sys.modules)").split()
    assert not {"triton", "torch", "numpy", "msgspec", "click", "rich"} & set(loaded)
    assert "nojit.runtime" in loaded
    assert "libcuda" not in run(f"{statement}; print(open('/proc/self/maps').read())")


def test_the_package_alone_imports_nothing_of_itself() -> None:
    code = "import sys; before = set(sys.modules); import nojit.runtime; print(*(set(sys.modules) - before))"
    assert {name for name in run(code).split() if name.startswith("nojit")} == {"nojit", "nojit.runtime"}


def test_every_public_name_is_there() -> None:
    for name in runtime.__all__:
        value: Any = getattr(runtime, name)
        assert value is not None
    assert runtime.load is loader.load
    assert runtime.ArgumentError is ArgumentError
    assert set(runtime.__all__) <= set(dir(runtime))
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = runtime.nothing


# -- attachments -----------------------------------------------------------------------------------------------------

NOTES = (("notes.txt", b"built on a Monday"), ("origins.json", b"{}"))


def test_attachments_are_read_by_name(tmp_path: Path) -> None:
    with loader.load(make_bundle(tmp_path / "a.nojit", ADD, attachments=NOTES)) as bundle:
        assert bundle.attachments == ("notes.txt", "origins.json")
        assert bundle.attachment("notes.txt") == b"built on a Monday"
        assert bundle.files[0].attachment("origins.json") == b"{}"


@pytest.mark.parametrize("name", ["notes", "", "\ud800", "add"])
def test_an_attachment_that_does_not_exist_is_told_with_those_that_do(tmp_path: Path, name: str) -> None:
    path = make_bundle(tmp_path / "a.nojit", ADD, attachments=NOTES)
    with loader.load(path) as bundle:
        for one in (bundle, bundle.files[0]):
            with pytest.raises(BundleError, match=r"expected one of 2 attachments, got .*notes.txt.* - at .*a.nojit"):
                one.attachment(name)


def test_a_bundle_without_attachments_says_so(tmp_path: Path) -> None:
    with loader.load(make_bundle(tmp_path / "a.nojit", ADD)) as bundle:
        assert bundle.attachments == ()
        with pytest.raises(BundleError, match=r"expected one of 0 attachments, got 'notes.txt' - at"):
            bundle.attachment("notes.txt")


def test_opening_and_launching_read_no_attachment(tmp_path: Path, fakecuda: FakeCuda) -> None:
    path = make_bundle(tmp_path / "a.nojit", ADD, attachments=NOTES)
    data = path.read_bytes()
    at = data.index(b"built on a Monday")
    path.write_bytes(data[:at] + b"x" + data[at + 1 :])
    with loader.load(path) as bundle:
        bundle.kernel("add")[(1,)](4, stream=0)
        assert fakecuda.launch_count() == 1
        assert bundle.attachment("origins.json") == b"{}"
        with pytest.raises(BundleIntegrityError, match=r"expected SHA-256 .* - at .*a.nojit attachment notes.txt"):
            bundle.attachment("notes.txt")
        with pytest.raises(BundleIntegrityError, match=r"attachment notes.txt"):
            bundle.files[0].verify()


def test_files_of_a_folder_may_share_an_attachment_and_must_not_differ_in_it(tmp_path: Path) -> None:
    older = kernel("add", {"n": "i32"}, on=target("sm_80"))
    make_bundle(tmp_path / "a.nojit", ADD, attachments=(NOTES[0], ("origins.json", b"{}"), ("seen.txt", b"of one")))
    other = (("notes.txt", b"built on a Tuesday"), ("origins.json", b"{}"))
    make_bundle(tmp_path / "b.nojit", older, on=target("sm_80"), attachments=other)
    with loader.load(tmp_path) as bundle:
        assert bundle.attachments == ("notes.txt", "origins.json", "seen.txt")
        assert bundle.attachment("origins.json") == b"{}"
        assert bundle.attachment("seen.txt") == b"of one"
        with pytest.raises(BundleError, match=r"equal attachments notes.txt in all files; read one with bundle.files"):
            bundle.attachment("notes.txt")
