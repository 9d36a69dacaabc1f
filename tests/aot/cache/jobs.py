"""Builds of a few variants with a fake compiler, as tests of the cache need them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import msgspec
from nojit.aot.cache.cache import Cache
from nojit.aot.cache.shared import SharedCache
from nojit.aot.cache.store import Store
from nojit.aot.cache.store_urls import open_store
from nojit.aot.cache.time_limits import Limits
from nojit.aot.compile import job_runner
from nojit.aot.compile.job_runner import Finished, Job
from nojit.aot.manifest.spec import KernelSpec
from nojit.aot.plan.function_facts import SourcePlace
from nojit.aot.variants.expand import expand_kernel

from tests.aot.fake_compiler import FakeCompiler, FakeSource

__all__ = ["LIMITS", "PLACE", "Machine", "job", "jobs"]

SPEC = msgspec.convert(
    {"name": "k", "source": "demo:k", "params": {"x": "*fp16"}, "matrix": {"D": list(range(64))}}, KernelSpec
)
VARIANTS = expand_kernel(SPEC, "sm_90", "here").variants
PLACE = SourcePlace("demo:k", Path("/nowhere"), "demo.toml kernel k")
LIMITS = Limits(operation_s=10.0, poll_s=0.2)


def job(number: int) -> Job:
    return Job(VARIANTS[number], PLACE, hashlib.sha256(str(number).encode()).hexdigest())


def jobs(count: int) -> list[Job]:
    return [job(number) for number in range(count)]


class Machine:
    """A machine with a local cache of its own.

    Args:
        folder: folder of the machine.
        mishaps: failures of its compiler.
    """

    def __init__(self, folder: Path, **mishaps: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        parts = {f"D={place[1:]} ": mishap for place, mishap in mishaps.items()}
        self.compiler = FakeCompiler(folder / "journal", {"demo:k": FakeSource(("x",), ("D",))}, mishaps=parts)
        self.told: list[str] = []
        self.cache: Cache | None = None

    def build(
        self,
        wanted: list[Job],
        place: Store | str | None,
        *,
        limits: Limits = LIMITS,
        executor: Callable[[], AbstractContextManager[Any]] = lambda: ThreadPoolExecutor(2),
        ahead: int = 4,
        **facts: Any,
    ) -> list[Finished]:
        """Build variants and return what came of each; `facts` are those of `SharedCache`."""
        store = open_store(place, limits.operation_s) if isinstance(place, str) else place
        shared = None if store is None else SharedCache(store, limits=limits, tell=self.told.append, **facts)
        self.cache = Cache(self.folder / "cache", shared)
        return list(
            job_runner.run(
                wanted,
                self.compiler.compile_variant,
                executor,
                self.cache,
                keep_going=True,
                check=self.compiler.check_compiled,
                ahead=ahead,
            )
        )

    @property
    def use(self) -> dict[str, Any]:
        """The counts of the last build, without zeros and the URL."""
        assert self.cache is not None
        facts = {name: getattr(self.cache.use, name) for name in self.cache.use.__slots__}
        return {name: value for name, value in facts.items() if value and name != "url"}

    @property
    def reasons(self) -> list[str]:
        """Why entries were refused by the last build."""
        assert self.cache is not None
        return [each.reason for each in self.cache.misfits]
