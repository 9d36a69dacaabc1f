"""Twins with line info, signatures, events and ranges on a real device: what runs is the same, and is seen."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.triton


@pytest.fixture(scope="module")
def built(device, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example's bundle for this device and its twin, signed, with the file of trusted keys beside them."""
    import torch

    major, minor = torch.cuda.get_device_capability(device)
    folder = tmp_path_factory.mktemp("twins")
    nojit = [sys.executable, "-m", "nojit"]
    manifest = ROOT / "examples/vector_add/vector_add.toml"
    words = ["build", manifest, "--arch", f"sm_{major}{minor}", "--out", folder, "--debug-info", "twin", "--jobs", "2"]
    environment = os.environ | {"NOJIT_CACHE_DIR": str(folder / "cache")}
    subprocess.run([*nojit, *words], check=True, env=environment)
    pytest.importorskip("securesystemslib")
    made = subprocess.run(
        [*nojit, "sign", "--new-key", folder / "key.pem", folder, folder / "debug"],
        check=True,
        capture_output=True,
        text=True,
    )
    (folder / "trusted.toml").write_text("schema = 1" + made.stdout.partition("schema = 1")[2], encoding="utf-8")
    return folder


def add(bundle, dtype: str = "float32", count: int = 100_003) -> None:
    import torch

    x = torch.randn(count, device="cuda").to(getattr(torch, dtype))
    out = torch.empty_like(x)
    bundle.kernel("vector_add")(x, x, out, x.numel())
    torch.testing.assert_close(out, x + x)


@pytest.mark.parametrize("trust", ["any", "signed"])
def test_a_twin_runs_as_its_bundle_does(built: Path, monkeypatch: pytest.MonkeyPatch, trust: str) -> None:
    from nojit import runtime

    monkeypatch.setenv("NOJIT_TRUST", trust)
    monkeypatch.setenv("NOJIT_TRUSTED_KEYS", str(built / "trusted.toml"))
    with runtime.load(built) as plain:
        add(plain)
        assert not any(b".debug_line" in image for image in plain.files[0].images())
    monkeypatch.setenv("NOJIT_DEBUG_INFO", str(built / "debug"))
    with runtime.load(built) as twin:
        add(twin)
        assert twin.files[0].path.startswith(str(built / "debug"))
        assert all(b".debug_line" in image for image in twin.files[0].images())


def test_what_is_not_signed_never_reaches_the_device(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from nojit import runtime

    statements = {path: path.read_bytes() for path in built.glob("*.intoto.jsonl")}
    monkeypatch.setenv("NOJIT_TRUST", "signed")
    monkeypatch.setenv("NOJIT_TRUSTED_KEYS", str(built / "trusted.toml"))
    loaded = runtime.counters().loaded
    for path in statements:
        path.unlink()
    try:
        with pytest.raises(runtime.BundleTrustError):
            runtime.load(built)
    finally:
        for path, content in statements.items():
            path.write_bytes(content)
    assert runtime.counters().loaded == loaded


def test_a_first_launch_is_logged_and_counted(built: Path, caplog: pytest.LogCaptureFixture) -> None:
    from nojit import runtime

    caplog.set_level(logging.DEBUG, "nojit")
    before = runtime.counters()
    with runtime.load(built) as bundle:
        # the process keeps the images that other tests launched
        add(bundle, "float16", 4096)
        add(bundle, "float16", 4096)
    after = runtime.counters()
    assert [record.getMessage().split()[0] for record in caplog.records] == ["open", "load", "plan"]
    assert (after.loaded - before.loaded, after.planned - before.planned) == (1, 1)
    # a launch that loads takes well under this, whatever the machine is doing beside
    assert 0 < after.plan_ns - before.plan_ns < 1_000_000_000


def test_launches_are_ranges_of_nvtx(built: Path) -> None:
    from nojit import runtime
    from nojit.runtime.observe import hooks, telemetry

    handle = telemetry.add_nvtx()
    try:
        with runtime.load(built) as bundle:
            add(bundle)
    finally:
        hooks.remove(handle)
