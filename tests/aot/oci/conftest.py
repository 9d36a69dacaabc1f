"""Registries, and bundles to push to them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from nojit.aot.backends.registry import arch_of
from nojit.aot.cli.group import cli
from nojit.aot.inspect.doctor import DriverState
from nojit.aot.oci.retries import Limits
from nojit.aot.provenance.statement import statement_path
from nojit.runtime.trust.envelope import signed_path

from tests.support.bundles import kernel, make_bundle, target
from tests.support.registry import FakeRegistry, serve
from tests.support.signing import Signer, envelope, make_statement

pytest.importorskip("requests")

_NUMBERS = count()
FAST = Limits(connect_s=5, read_s=5, tries=3, pause_s=0, pause_max_s=0)


@pytest.fixture(autouse=True)
def own_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Use no credentials of this machine's user, and never wait."""
    for name in ("DOCKER_CONFIG", "REGISTRY_AUTH_FILE", "XDG_RUNTIME_DIR", "ORAS_USER", "ORAS_PASS", "NOJIT_TRUST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr("nojit.aot.cli.options.registries.LIMITS", FAST)


@pytest.fixture
def run() -> Callable[..., Result]:
    """Run a command line, and check its exit code."""

    def invoke(*words: object, code: int = 0) -> Result:
        result = CliRunner().invoke(cli, [str(word) for word in words], prog_name="nojit")
        assert result.exit_code == code, result.output
        return result

    return invoke


@pytest.fixture
def document(run: Callable[..., Result]) -> Callable[..., dict[str, Any]]:
    """Run a command line with ``--json``, and return what it writes."""

    def invoke(*words: object, code: int = 0) -> dict[str, Any]:
        written: dict[str, Any] = json.loads(run(*words, "--json", code=code).stdout)
        return written

    return invoke


@pytest.fixture
def bundles(tmp_path: Path) -> Callable[..., Path]:
    """Write bundles of one small kernel, one for each image arch, into a folder, with statements."""

    def make(
        *image_archs: str,
        name: str = "acme",
        version: str = "1.0",
        signer: str = "",
        folder: str = "made",
        build: int = 7,
    ) -> Path:
        out = tmp_path / folder
        out.mkdir(exist_ok=True)
        for image_arch in image_archs:
            on = target(image_arch)
            add = kernel(f"add_{name}", {"n": "i32"}, grid=["n"], on=on)
            path = out / f"{name}-{version}-{arch_of(on)}.nojit"
            make_bundle(path, add, name=name, version=version, on=on, min_driver=13000)
            state(path, signer=signer, build=build)
        return out

    return make


def state(bundle: Path, *, signer: str = "", build: int = 7, expires: str = "") -> None:
    """Write the statements of a bundle beside it; the signed one if a signer is named."""
    statement = make_statement(bundle, build_number=build)
    definition = statement["predicate"]["buildDefinition"]
    definition["resolvedDependencies"] = []
    more = {"nojit_expiresOn": expires} if expires else {}
    statement["predicate"]["runDetails"] = {
        "builder": {"id": "https://ci.example"},
        "metadata": {"finishedOn": "2026-01-02T03:09:10Z", **more},
    }
    statement_path(bundle).write_text(json.dumps(statement, indent=1), encoding="utf-8")
    if signer:
        Path(signed_path(str(bundle))).write_bytes(envelope(statement, Signer.of(signer)))


def public_key(folder: Path, name: str) -> Path:
    """Write the public key of a signer."""
    path = folder / f"{name}.pem.pub"
    path.write_text(Signer.of(name).pem, encoding="ascii")
    path.chmod(0o644)
    return path


def files(folder: Path) -> dict[str, bytes]:
    """Return the contents of a folder's files by relative path."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture
def devices(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Give this machine devices of compute capabilities, such as 90."""

    def have(*capabilities: int, driver: int = 13000) -> None:
        state = DriverState(driver, capabilities, "" if capabilities else "no NVIDIA driver")
        monkeypatch.setattr("nojit.aot.cli.options.registries.probe_driver", lambda: state)

    return have


@pytest.fixture
def fake() -> Iterator[FakeRegistry]:
    """A registry in this process that can fail."""
    with serve() as registry:
        yield registry


@pytest.fixture(scope="session")
def debian_registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Host and port of the registry of Debian's package docker-registry, which lacks referrers."""
    program = shutil.which("docker-registry")
    if program is None:
        pytest.skip("docker-registry is not installed: apt install docker-registry")
    folder = tmp_path_factory.mktemp("registry")
    config = {
        "version": 0.1,
        "storage": {"filesystem": {"rootdirectory": str(folder / "data")}},
        "http": {"addr": "127.0.0.1:0", "secret": "of the tests"},
    }
    # JSON is YAML
    (folder / "config.yml").write_text(json.dumps(config), encoding="utf-8")
    environment = {"PATH": os.environ["PATH"], "OTEL_TRACES_EXPORTER": "none"}
    with subprocess.Popen(
        [program, "serve", str(folder / "config.yml")],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=environment,
        text=True,
    ) as server:
        assert server.stderr is not None
        found = None
        while found is None:
            line = server.stderr.readline()
            assert line, "docker-registry ended before it listened"
            found = re.search(r"listening on (127\.0\.0\.1:\d+)", line)
        # or the pipe would fill up
        drain = subprocess.Popen(["cat"], stdin=server.stderr, stdout=subprocess.DEVNULL)
        yield found[1]
        server.terminate()
        drain.wait()


@pytest.fixture(params=["fake", "fake without referrers", "debian"])
def registry(request: pytest.FixtureRequest) -> Iterator[str]:
    """The host of a registry: one in this process, with and without referrers, and Debian's."""
    if request.param == "debian":
        yield request.getfixturevalue("debian_registry")
    else:
        with serve(referrers=request.param == "fake") as registry:
            yield registry.host


@pytest.fixture
def any_address(registry: str) -> str:
    """The address of a new release in each registry."""
    return f"oci://{registry}/acme/kernels{next(_NUMBERS)}:1.0"


@pytest.fixture
def address(fake: FakeRegistry) -> str:
    """The address of a new release in a registry of this process."""
    return f"oci://{fake.host}/acme/kernels:1.0"
