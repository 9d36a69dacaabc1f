"""`nojit wheel`: which wheels there are, what is in each, and what is refused."""

from __future__ import annotations

import base64
import csv
import email
import hashlib
import io
import json
import os
import stat
import subprocess
import sys
import zipfile
from collections.abc import Callable
from email.message import Message
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from nojit.aot.cli.group import cli
from nojit.aot.wheel.names import check_name, check_version, escaped
from nojit.runtime.bundle.file import BundleFile
from nojit.runtime.discovery.installed import normalized
from nojit.runtime.errors import PackageError
from nojit.runtime.trust.claim import INDEX_DIGEST
from nojit.runtime.trust.envelope import signed_path

from tests.aot.wheel.conftest import Make, entries
from tests.support.bundles import kernel, make_bundle, target
from tests.support.signing import Signer, make_statement
from tests.support.signing import envelope as canonical_envelope

Wheel = Callable[..., Result]


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def metadata(path: Path) -> Message:
    (text,) = (content for name, content in entries(path).items() if name.endswith(".dist-info/METADATA"))
    return email.message_from_bytes(text)


def test_providers_and_a_thin_wheel(bundles: Make, wheel: Wheel, tmp_path: Path) -> None:
    wheel(bundles("sm_80", "sm_90a"))
    assert names(tmp_path / "dist") == {
        "acme_kernels_sm80-1.0-py3-none-any.whl",
        "acme_kernels_sm90-1.0-py3-none-any.whl",
        "acme_kernels-1.0-py3-none-any.whl",
    }
    provider = entries(tmp_path / "dist/acme_kernels_sm90-1.0-py3-none-any.whl")
    assert sorted(provider) == [
        "acme_kernels_sm90-1.0.dist-info/METADATA",
        "acme_kernels_sm90-1.0.dist-info/RECORD",
        "acme_kernels_sm90-1.0.dist-info/WHEEL",
        "acme_kernels_sm90-1.0.dist-info/entry_points.txt",
        "acme_kernels_sm90-1.0.dist-info/nojit.json",
        "acme_kernels_sm90/__init__.py",
        "acme_kernels_sm90/acme-kernels-1.0-sm_90.nojit",
    ]
    built = tmp_path / "artifacts/acme-kernels-1.0-sm_90.nojit"
    assert provider["acme_kernels_sm90/acme-kernels-1.0-sm_90.nojit"] == built.read_bytes()
    points = provider["acme_kernels_sm90-1.0.dist-info/entry_points.txt"]
    assert points == b"[nojit.bundles]\nacme-kernels = acme_kernels_sm90\n"
    meta = metadata(tmp_path / "dist/acme_kernels-1.0-py3-none-any.whl")
    assert meta.get_all("Provides-Extra") == ["sm80", "sm90", "all"]
    required = meta.get_all("Requires-Dist") or []
    assert 'acme-kernels-sm90==1.0; extra == "sm90"' in required
    assert [line for line in required if 'extra == "all"' in line] == [
        'acme-kernels-sm80==1.0; extra == "all"',
        'acme-kernels-sm90==1.0; extra == "all"',
    ]
    assert not [
        name for name in entries(tmp_path / "dist/acme_kernels-1.0-py3-none-any.whl") if name.endswith(".nojit")
    ]


def test_variants_and_a_plain_wheel(bundles: Make, wheel: Wheel, tmp_path: Path) -> None:
    wheel(bundles("sm_80", "sm_90a"), "--layout", "variants")
    assert names(tmp_path / "dist") == {
        "acme_kernels-1.0-py3-none-any-sm80.whl",
        "acme_kernels-1.0-py3-none-any-sm90.whl",
        "acme_kernels-1.0-py3-none-any.whl",
        "acme_kernels-1.0-variants.json",
    }
    plain = entries(tmp_path / "dist/acme_kernels-1.0-py3-none-any.whl")
    held = [name for name in plain if name.endswith(".nojit")]
    assert held == ["acme_kernels/acme-kernels-1.0-sm_80.nojit", "acme_kernels/acme-kernels-1.0-sm_90.nojit"]
    assert not [name for name in plain if name.endswith("variant.json")]
    listed = json.loads((tmp_path / "dist/acme_kernels-1.0-variants.json").read_text())
    assert listed["variants"] == {
        "sm80": {"nvidia": {"cuda_version_lower_bound": ["12.0"], "sm_arch": ["80_real"]}},
        "sm90": {"nvidia": {"cuda_version_lower_bound": ["13.0"], "sm_arch": ["90_real"]}},
    }
    for label in ("sm80", "sm90"):
        variant = entries(tmp_path / f"dist/acme_kernels-1.0-py3-none-any-{label}.whl")
        own = json.loads(variant["acme_kernels-1.0.dist-info/variant.json"])
        assert own == {**listed, "variants": {label: listed["variants"][label]}}
        # installers take one wheel's word for all wheels of a version
        assert variant["acme_kernels-1.0.dist-info/METADATA"] == plain["acme_kernels-1.0.dist-info/METADATA"]
        assert len([name for name in variant if name.endswith(".nojit")]) == 1


def test_a_gpu_that_would_get_the_wrong_variant_is_told(bundles: Make, wheel: Wheel) -> None:
    folder = bundles("sm_80", "sm_90a", "sm_100a", "sm_120a")
    told = [line for line in wheel(folder, "--layout", "variants").stderr.splitlines() if "GPUs of" in line]
    assert [line.partition(", which")[0].split("GPUs of ")[1] for line in told] == [
        "sm_87 and sm_88 would get the variant for sm_80",
        "sm_101 and sm_103 and sm_107 would get the variant for sm_100",
        "sm_121 would get the variant for sm_120",
    ]
    assert "GPUs of" not in wheel(folder, "--out", folder.parent / "providers").stderr
    bundles("sm_87", "sm_88", "sm_101a", "sm_103a", "sm_107a", "sm_121a")
    # those of the nearest lower minor version, as installers choose, and 8.9 is next to 8.8
    told = [line for line in wheel(folder, "--layout", "variants").stderr.splitlines() if "GPUs of" in line]
    assert [line.partition(", which")[0] for line in told] == ["GPUs of sm_89 would get the variant for sm_88"]
    bundles("sm_86", "sm_89")
    assert "GPUs of" not in wheel(folder, "--layout", "variants").stderr


def test_the_thin_wheel_verifies_and_holds_nothing_to_inspect(bundles: Make, wheel: Wheel, tmp_path: Path) -> None:
    wheel(bundles("sm_80", "sm_90a"))
    path = tmp_path / "dist" / "acme_kernels-1.0-py3-none-any.whl"
    verified = CliRunner().invoke(cli, ["verify", str(path)], prog_name="nojit")
    assert verified.exit_code == 0, verified.output
    assert f"OK      {path}  RECORD lists its 4 files and no other" in verified.output
    shown = CliRunner().invoke(cli, ["inspect", str(path)], prog_name="nojit")
    assert shown.exit_code == 1
    assert "got a thin wheel, whose extras require the wheels that hold them" in shown.output
    broken = path.with_name("broken-1.0-py3-none-any.whl")
    broken.write_bytes(path.read_bytes().replace(b"Requires-Dist", b"Requires-Dizt", 1))
    assert CliRunner().invoke(cli, ["verify", str(broken)], prog_name="nojit").exit_code == 3


@pytest.mark.parametrize("layout", ["providers", "variants"])
def test_records_are_right(bundles: Make, wheel: Wheel, tmp_path: Path, layout: str) -> None:
    wheel(bundles("sm_80", "sm_90a"), "--layout", layout)
    for path in (tmp_path / "dist").glob("*.whl"):
        files = entries(path)
        (name,) = (name for name in files if name.endswith("/RECORD"))
        # the last entry, so that a reader of the archive has seen what it lists
        assert list(files)[-1] == name
        rows = list(csv.reader(io.StringIO(files[name].decode())))
        assert [row[0] for row in rows] == list(files)
        assert rows[-1] == [name, "", ""]
        for listed, digest, length in rows[:-1]:
            hashed = base64.urlsafe_b64encode(hashlib.sha256(files[listed]).digest()).rstrip(b"=").decode()
            assert (digest, length) == (f"sha256={hashed}", str(len(files[listed])))


def test_the_same_bundles_give_the_same_bytes(bundles: Make, wheel: Wheel, tmp_path: Path) -> None:
    folder = bundles("sm_80", "sm_90a")
    wheel(folder)
    (tmp_path / "elsewhere").mkdir()
    for path in folder.iterdir():
        # neither the names nor the times of the files are part of it
        moved = path.rename(tmp_path / "elsewhere" / f"x{path.name}")
        os.utime(moved, (1, 1))
    code = "import os; os.umask(0o077); from nojit.aot.cli import main; main()"
    words = ["wheel", str(tmp_path / "elsewhere"), "--out", str(tmp_path / "again")]
    environment = os.environ | {"TZ": "Asia/Tokyo", "LC_ALL": "C", "PYTHONHASHSEED": "7"}
    subprocess.run([sys.executable, "-c", code, *words], check=True, capture_output=True, env=environment)
    assert names(tmp_path / "again") == names(tmp_path / "dist")
    for path in (tmp_path / "dist").iterdir():
        assert path.read_bytes() == (tmp_path / "again" / path.name).read_bytes(), path.name


def test_entries_are_plain_files_without_a_time(bundles: Make, wheel: Wheel, tmp_path: Path) -> None:
    wheel(bundles("sm_90a"))
    with zipfile.ZipFile(tmp_path / "dist/acme_kernels_sm90-1.0-py3-none-any.whl") as archive:
        for info in archive.infolist():
            assert info.date_time == (1980, 1, 1, 0, 0, 0)
            assert info.external_attr >> 16 == stat.S_IFREG | 0o644
            assert info.compress_type == zipfile.ZIP_STORED


def test_what_a_wheel_says_of_itself(bundles: Make, wheel: Wheel, tmp_path: Path) -> None:
    (tmp_path / "LICENSE").write_text("do as you like")
    folder = bundles("sm_90a")
    words = ("--license", "MIT", "--license-file", tmp_path / "LICENSE", "--url", "Source=https://example.org/acme")
    wheel(folder, *words, "--require", "torch>=2.6", "--runtime", "nojit~=0.1")
    path = tmp_path / "dist/acme_kernels_sm90-1.0-py3-none-any.whl"
    said, files = metadata(path), entries(path)
    assert said["License-Expression"] == "MIT"
    assert said["License-File"] == "LICENSE"
    assert files["acme_kernels_sm90-1.0.dist-info/licenses/LICENSE"] == b"do as you like"
    assert said["Project-URL"] == "Source, https://example.org/acme"
    assert said.get_all("Requires-Dist") == ["nojit~=0.1", "torch>=2.6"]
    assert "driver for CUDA" in said.get_payload()
    (told,) = json.loads(files["acme_kernels_sm90-1.0.dist-info/nojit.json"])["bundles"]
    held = files[told["file"]]
    assert told["sha256"] == hashlib.sha256(held).hexdigest()
    assert told["size_bytes"] == len(held)
    with BundleFile(folder / "acme-kernels-1.0-sm_90.nojit") as bundle:
        assert told["digest"] == bundle.digest
        assert told["toolchain"] == dict(bundle.index.toolchain)
        # what the kernels take, the index, headers and lists aside
        stored = sum(one["stored_bytes"] for one in told["kernels"].values())
        assert 0 < stored == sum(one.table.stored_bytes + one.payload_bytes for one in bundle.index.kernels)


def envelope(bundle: Path, *, dirty: bool = False, **changes: Any) -> bytes:
    """Sign a statement of a bundle; no key is known here, so whose it is matters to nobody."""
    statement = make_statement(bundle, **changes)
    source = {"name": "source", "digest": {"gitCommit": "c" * 40}, "annotations": {"dirty": dirty}}
    run = {"builder": {"id": "test"}, "metadata": {"finishedOn": "2026-01-02T03:04:05Z"}}
    statement["predicate"]["buildDefinition"]["resolvedDependencies"] = [source]
    statement["predicate"]["runDetails"] = run
    return canonical_envelope(statement, RELEASE)


RELEASE = Signer.of("release")


def test_a_bundles_signed_statement_goes_with_it(bundles: Make, wheel: Wheel, tmp_path: Path) -> None:
    folder = bundles("sm_90a")
    built = (folder / "acme-kernels-1.0-sm_90.nojit").rename(folder / "a.nojit")
    signed = envelope(built)
    (folder / "a.intoto.jsonl").write_bytes(signed)
    (folder / "a.report.json").write_text("{}")
    assert "without a signed statement" not in wheel(built).stdout
    files = entries(tmp_path / "dist/acme_kernels_sm90-1.0-py3-none-any.whl")
    assert files["acme_kernels_sm90/acme-kernels-1.0-sm_90.intoto.jsonl"] == signed
    assert not [name for name in files if "report" in name]


def test_bundles_without_a_signed_statement_are_named(bundles: Make, wheel: Wheel) -> None:
    folder = bundles("sm_80", "sm_90a")
    (statement,) = [path.with_suffix(".intoto.jsonl") for path in folder.glob("*sm_80.nojit")]
    statement.write_bytes(envelope(statement.with_name(statement.name.removesuffix(".intoto.jsonl") + ".nojit")))
    said = " ".join(wheel(folder).stdout.split())
    assert (
        f"unsigned, refused with NOJIT_TRUST=signed; sign them with nojit sign: {folder}/acme-kernels-1.0-sm_90.nojit"
        in said
    )


OTHER_DIGEST = [{"name": "x", "digest": {"sha256": "f" * 64, INDEX_DIGEST: "f" * 64}}]
MALFORMED = "expected a signed statement of nojit sign"


@pytest.mark.parametrize(
    ("code", "message", "statement"),
    [
        (1, "got one of ffffffffffff", lambda path: envelope(path, subject=OTHER_DIGEST)),
        (1, MALFORMED, lambda path: b"{}"),
        (1, MALFORMED, lambda path: b"\xff"),
        (1, MALFORMED, lambda path: b'{"payload": "W10="}'),
        (1, MALFORMED, lambda path: envelope(path)[:-1]),
        (1, MALFORMED, lambda path: envelope(path).replace(b'":', b'": ', 1)),
        # the digest alone is right
        (3, "expected a file with SHA-256 fff", lambda path: envelope(path, subject=_subject(path, sha256="f" * 64))),
        (3, "expected an in-toto statement v1", lambda path: envelope(path, _type="other")),
        (3, "statement of acme-kernels 1.0", lambda path: canonical_envelope(_named(path, "other"), RELEASE)),
        (3, "canonical JSON", lambda path: canonical_envelope(json.dumps(make_statement(path)).encode(), RELEASE)),
    ],
)
def test_a_statement_that_no_loader_would_take_is_refused(
    bundles: Make, wheel: Wheel, code: int, message: str, statement: Callable[[Path], bytes]
) -> None:
    built = bundles("sm_90a") / "acme-kernels-1.0-sm_90.nojit"
    Path(signed_path(str(built))).write_bytes(statement(built))
    assert message in wheel(built, code=code).stderr
    assert not (built.parents[1] / "dist").exists()


def _subject(bundle: Path, **digests: str) -> list[dict[str, Any]]:
    (subject,) = make_statement(bundle)["subject"]
    return [subject | {"digest": subject["digest"] | digests}]


def _named(bundle: Path, name: str) -> dict[str, Any]:
    statement = make_statement(bundle)
    statement["predicate"]["buildDefinition"]["externalParameters"]["bundle"]["name"] = name
    return statement


def test_what_a_wheel_lacks_is_warned_of(bundles: Make, wheel: Wheel) -> None:
    built = bundles("sm_90a") / "acme-kernels-1.0-sm_90.nojit"
    Path(signed_path(str(built))).write_bytes(envelope(built))
    assert "no licence: add --license SPDX" in wheel(built).stderr
    assert wheel(built, "-q").stderr == ""
    assert wheel(built, "--license", "MIT").stderr == ""
    Path(signed_path(str(built))).write_bytes(envelope(built, dirty=True))
    said = wheel(built, "--license", "MIT", "-q").stderr
    assert said == f"built from a checkout with uncommitted changes: {built}\n"


@pytest.mark.parametrize(("first", "then"), [("providers", "variants"), ("variants", "providers")])
def test_the_other_layout_overwrites_nothing(
    bundles: Make, wheel: Wheel, tmp_path: Path, first: str, then: str
) -> None:
    folder = bundles("sm_90a")
    wheel(folder, "--layout", first)
    before = {path: path.read_bytes() for path in (tmp_path / "dist").iterdir()}
    said = wheel(folder, "--layout", then, code=1).stderr
    assert "expected a folder without wheels of another --layout: choose one with --out, got the " in said
    assert str(tmp_path / "dist/acme_kernels-1.0-py3-none-any.whl") in said
    assert {path: path.read_bytes() for path in (tmp_path / "dist").iterdir()} == before
    # the same layout, another version and what is no wheel may be there
    wheel(folder, "--layout", first)
    wheel(folder, "--layout", then, "--version", "2.0")
    (tmp_path / "dist/acme_kernels-1.0-py3-none-any.whl").write_bytes(b"cut off")
    wheel(folder, "--layout", then)


def test_bundles_of_several_names(bundles: Make, wheel: Wheel, tmp_path: Path) -> None:
    bundles("sm_90a")
    folder = bundles("sm_90a", name="More.Kernels", kernel="mul")
    wheel(folder)
    assert "more_kernels_sm90-1.0-py3-none-any.whl" in names(tmp_path / "dist")
    wheel(folder, "--name", "Both_Of-them", "--version", "2.0", "--out", tmp_path / "both")
    assert names(tmp_path / "both") == {
        "both_of_them_sm90-2.0-py3-none-any.whl",
        "both_of_them-2.0-py3-none-any.whl",
    }
    files = entries(tmp_path / "both/both_of_them_sm90-2.0-py3-none-any.whl")
    assert {name for name in files if name.endswith(".nojit")} == {
        "both_of_them_sm90/acme-kernels-1.0-sm_90.nojit",
        "both_of_them_sm90/More.Kernels-1.0-sm_90.nojit",
    }
    assert b"both-of-them = both_of_them_sm90" in files["both_of_them_sm90-2.0.dist-info/entry_points.txt"]


def test_a_wheel_over_its_budget_names_the_largest_kernels(wheel: Wheel, tmp_path: Path) -> None:
    large = kernel("large", {"n": "i32", "BLOCK": "constexpr"}, configs=[{"BLOCK": block} for block in range(40)])
    make_bundle(tmp_path / "a.nojit", large, kernel("tiny", {"n": "i32"}), name="acme")
    said = wheel(tmp_path / "a.nojit", "--max-size", "0.005", code=1).stderr
    assert "expected wheels of at most 5,000 bytes" in said
    assert said.index("large ") < said.index("tiny ")
    assert "in 40 variants" in said
    assert not (tmp_path / "dist").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--version", "1.0-1"), "set one with --version, got '1.0-1' - at --version"),
        (("--name", "-acme"), "expected a name of letters"),
        (("--name", "NoJIT"), "expected a name other than the runtime's, which this wheel would replace"),
        (("--name", "1acme"), "expected a name of letters"),
        (("--require", "torch\nEvil: yes"), "expected metadata fields of one line"),
        (("--require", ">>>"), "expected a requirement such as torch"),
        (("--runtime", "nojit ><"), "expected a requirement such as torch"),
        (("--license", "foo"), "expected an SPDX expression of known licences"),
        (("--license-file", "no-such-file"), "expected a licence file"),
    ],
)
def test_what_no_wheel_can_be_is_refused(bundles: Make, wheel: Wheel, words: tuple[str, ...], message: str) -> None:
    assert message in wheel(bundles("sm_90a"), *words, code=1).stderr


def test_wrong_places_are_refused(bundles: Make, wheel: Wheel, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    words = ("--license-file", tmp_path / "fifo")
    assert "expected a licence file, got a FIFO" in wheel(bundles("sm_90a"), *words, code=1).stderr
    (tmp_path / "empty").mkdir()
    assert "expected a folder with *.nojit files" in wheel(tmp_path / "empty", code=1).stderr
    assert "expected a bundle file" in wheel(tmp_path / "missing.nojit", code=1).stderr
    folder = bundles("sm_90a")
    path = folder / "acme-kernels-1.0-sm_90.nojit"
    path.write_bytes(path.read_bytes()[:-1] + b"\0")
    wheel(folder, code=3)
    assert not (tmp_path / "dist").exists()


def test_one_kernel_in_two_bundles_is_refused(bundles: Make, wheel: Wheel) -> None:
    bundles("sm_90a")
    folder = bundles("sm_90a", name="more")
    said = wheel(folder, "--name", "both", code=1).stderr
    assert "expected kernel add once for sm_90" in said
    assert "acme-kernels-1.0-sm_90.nojit and " in said
    assert wheel(bundles("sm_80", version="2.0"), "--name", "both", code=1).stderr.startswith(
        "error: expected bundles of one version"
    )


def test_what_would_be_one_file_is_refused(bundles: Make, wheel: Wheel, tmp_path: Path) -> None:
    folder = bundles("sm_90a")
    path = folder / "acme-kernels-1.0-sm_90.nojit"
    path.rename(folder / "first.nojit")
    bundles("sm_90a", kernel="mul")
    said = wheel(folder, code=1).stderr
    assert (
        "expected bundles of different names, versions or archs: leave one out, got acme-kernels-1.0-sm_90.nojit of "
        in said
    )
    path.unlink()
    # whose wheel is called as the thin one of this is
    bundles("sm_90a", name="acme-kernels-sm90", kernel="mul")
    said = wheel(folder, code=1).stderr
    assert "got acme_kernels_sm90-1.0-py3-none-any.whl twice, " in said
    assert not (tmp_path / "dist").exists()


def test_a_version_is_no_path(bundles: Make, wheel: Wheel, tmp_path: Path) -> None:
    folder = bundles("sm_90a")
    for version in ("1/../../x", "1 2", "v1"):
        add = kernel("add", {"n": "i32"}, grid=["n"], on=target("sm_90a"))
        make_bundle(
            folder / "acme-kernels-1.0-sm_90.nojit",
            add,
            name="acme",
            version=version,
            on=target("sm_90a"),
            min_driver=13000,
        )
        said = wheel(folder, "--version", "1.0", code=1).stderr
        assert f"expected a bundle's version as nojit build allows, got {version}" in said
    assert not (tmp_path / "dist").exists()


def test_a_records_names_are_quoted(bundles: Make, wheel: Wheel, tmp_path: Path) -> None:
    licences = [tmp_path / "a,b.txt", tmp_path / 'q"uote.txt']
    for licence in licences:
        licence.write_text("may")
    wheel(bundles("sm_90a"), *(word for licence in licences for word in ("--license-file", licence)))
    (path,) = (tmp_path / "dist").glob("*_sm90-*.whl")
    (record,) = (content for name, content in entries(path).items() if name.endswith("/RECORD"))
    rows = list(csv.reader(io.StringIO(record.decode())))
    assert {len(row) for row in rows} == {3}
    assert [row[0] for row in rows] == list(entries(path))


def test_a_url_without_a_label_is_wrong_usage(bundles: Make, wheel: Wheel) -> None:
    for url in (
        "https://example.org",
        "=https://example.org",
        "Source=example.org",
        "Source=https://",
        "Source=https://a b",
    ):
        assert "expected --url LABEL=https://" in wheel(bundles("sm_90a"), "--url", url, code=2).stderr


@pytest.mark.parametrize("label", ["Docs, all of them", "Docs,", " Docs", "Docs ", " ", "D" * 33])
def test_a_label_that_readers_of_metadata_would_change_is_wrong_usage(
    bundles: Make, wheel: Wheel, tmp_path: Path, label: str
) -> None:
    said = wheel(bundles("sm_90a"), "--url", f"{label}=https://example.org", code=2).stderr
    assert (
        f"--url: expected a label of at most 32 characters, without commas or surrounding spaces, got {label!r}" in said
    )
    assert not (tmp_path / "dist").exists()


def test_a_label_is_there_once(bundles: Make, wheel: Wheel) -> None:
    words = ("--url", "Docs=https://example.org/a", "--url")
    said = wheel(bundles("sm_90a"), *words, "Docs=https://example.org/a", code=2).stderr
    assert "--url: expected each label once, got 'Docs' twice" in said


def test_urls_are_read_as_they_were_given(bundles: Make, wheel: Wheel, tmp_path: Path) -> None:
    given = {"D" * 32: "https://example.org/?a=b,c", "Bug tracker": "http://example.org/bugs"}
    wheel(bundles("sm_90a"), *(word for label, url in given.items() for word in ("--url", f"{label}={url}")))
    path = tmp_path / "dist/acme_kernels_sm90-1.0-py3-none-any.whl"
    read = [each.partition(",") for each in metadata(path).get_all("Project-URL")]
    assert {label: url.strip() for label, _, url in read} == given


def test_the_document_names_every_file(bundles: Make, wheel: Wheel, tmp_path: Path) -> None:
    document = json.loads(wheel(bundles("sm_80", "sm_90a"), "--layout", "variants", "--json").stdout)
    assert [file["kind"] for file in document["files"]] == ["variant", "variant", "plain", "index"]
    for file in document["files"]:
        content = Path(file["path"]).read_bytes()
        assert (file["size_bytes"], file["sha256"]) == (len(content), hashlib.sha256(content).hexdigest())
        assert set(file["archs"]) <= {"sm_80", "sm_90"}


def test_names() -> None:
    assert normalized("Acme__Kernels.-x") == "acme-kernels-x"
    assert escaped("Acme__Kernels.-x") == "acme_kernels_x"
    assert check_name("Acme.Kernels") == "acme-kernels"
    for version in ("1", "0.1.0", "1!2.0rc3.post4.dev5+cu130.x"):
        assert check_version(version, "") == version
    for version in ("", "v1", "01", "1.0.0-1", "1.0RC1", "1.0+A", "1.0\n", "1" * 5000):
        with pytest.raises(PackageError):
            check_version(version, "")
