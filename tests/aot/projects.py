"""Projects to build: a folder with a manifest and kernel sources, built by the command in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from nojit.runtime.bundle.file import BundleFile

from tests.support.digests import with_digests

__all__ = ["HEADER", "KERNEL", "Built", "Project", "entry"]

HEADER = """
schema = 1

[bundle]
name = "demo"
version = "1.0"
archs = ["sm_80"]
"""
KERNEL = """
import triton
import triton.language as tl


@triton.jit
def k(out_ptr, V: tl.constexpr):
    tl.store(out_ptr, tl.exp(tl.load(out_ptr)) + V)
"""


def entry(name: str, source: str, more: str = "") -> str:
    """A kernel's entry."""
    return f"""
[[kernel]]
name = "{name}"
source = '{source}'
params = {{ out_ptr = "*fp32" }}
configs = [{{ V = 1 }}]
{more}
"""


@dataclass(frozen=True)
class Built:
    """What came of a build."""

    code: int
    stdout: str
    stderr: str
    out: Path

    def images(self, arch: str = "sm_80") -> dict[str, list[bytes]]:
        """The images of each kernel."""
        with BundleFile(self.out / f"demo-1.0-{arch}.nojit") as bundle:
            return {
                name: [bundle.image(name, number) for number in range(bundle.entry(name).images)]
                for name in bundle.kernels
            }


class Project:
    """A folder with a manifest and sources."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)

    def write(self, files: Mapping[str, str] | None = None, **named: str) -> Project:
        """Write files by their paths; ``a_py`` is ``a.py``."""
        for name, text in {
            **(files or {}),
            **{name.replace("_py", ".py"): text for name, text in named.items()},
        }.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return self

    def build(
        self,
        *entries: str,
        words: tuple[str, ...] = (),
        cwd: Path | None = None,
        cache: Path | None = None,
        header: str = HEADER,
        **environment: str,
    ) -> Built:
        """Build the entries, in a process of its own."""
        ran = subprocess.run(
            self.command(*entries, words=words, cache=cache, header=header),
            cwd=cwd or self.folder.parent,
            env=os.environ | environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        return Built(ran.returncode, ran.stdout, ran.stderr, self.folder / "out")

    def command(
        self, *entries: str, words: tuple[str, ...] = (), cache: Path | None = None, header: str = HEADER
    ) -> list[str]:
        """Write a manifest of the entries, and return the command that builds it."""
        (self.folder / "demo.toml").write_text(header + "".join(entries), encoding="utf-8")
        places = [
            self.folder / "demo.toml",
            "--out",
            self.folder / "out",
            "--cache-dir",
            with_digests(cache or self.folder / "cache"),
        ]
        return [sys.executable, "-m", "nojit", "build", *map(str, places), "-j", "2", *words]
