"""Let driver calls of a launch fail, one at a time, each time in a process that has not used the driver before.

Run as a script, since nobody may fork once CUDA is initialised: it imports all that is needed, and forks for each case.

    python -m tests.support.drill SETUP      a JSON file, `Setup`; prints a JSON line for each case, `Outcome`
"""

from __future__ import annotations

import functools
import gc
import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.fakecuda import FakeCuda, load_extension
from tests.support.tensors import InterfaceTensor, PointerTensor

__all__ = ["DRILLS", "Outcome", "Setup"]


@dataclass(frozen=True, slots=True)
class Setup:
    """What a run needs."""

    bundle: str
    driver: str
    faketorch: str
    drill: str
    """A key of `DRILLS`."""
    codes: tuple[int, ...]
    """What the first call of each driver function gives in turn."""
    special: tuple[int, ...]
    """Those of them that later calls of a function give too, beside one of the others, which all mean the same, in rotation."""


@dataclass(frozen=True, slots=True)
class Raised:
    """An exception."""

    kind: str
    message: str
    call: str | None
    code: int | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """One case: a driver call of the drill gave a code, once."""

    function: str
    number: int
    """Which of the drill's driver calls it was."""
    code: int
    first: Raised | None
    healthy: bool
    """After the first try."""
    again: Raised | None
    """The same once more, with nothing scripted."""
    launches: tuple[int, int]
    """Launched by each of the two."""
    argument: int
    """The first argument of the last launch; -1 if there was none."""
    depths: tuple[int, int]
    """Of the thread's context stack, before and after."""
    scratch: tuple[int, int]
    """Allocations of scratch memory, and how many of them were freed."""
    libraries: int
    violations: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class World:
    """What drills act on."""

    driver: FakeCuda
    torch: ModuleType
    bundle: Any

    def add(self, device: int = 0, n: int = 5) -> None:
        """Launch the plain kernel on tensors."""
        tensor = self.torch.Tensor
        self.bundle.kernel("add")[(1,)](tensor(0x1000, device=device), tensor(0x2000, device=device), n)

    def scratch(self) -> None:
        """Launch the kernel that needs scratch memory."""
        self.bundle.kernel("scratch")[(2,)](self.torch.Tensor(0x1000), 5)

    def wide(self) -> None:
        """Launch the kernel that needs limits raised and launch attributes."""
        self.bundle.kernel("wide")[(2,)](self.torch.Tensor(0x1000), 5)

    def address(self) -> None:
        """Launch with memory whose device only the driver can tell."""
        self.bundle.kernel("add")[(1,)](InterfaceTensor(0x4000_0000), self.torch.Tensor(0x2000), 5)

    def plain(self) -> None:
        """Launch without a tensor, on the current device."""
        self.bundle.kernel("plain")[(1,)](7)

    def described(self, rows: int = 5) -> None:
        """Launch the kernel that takes a tensor descriptor."""
        from nojit import runtime

        descriptor = runtime.TensorDescriptor(self.torch.Tensor(0x1000), (rows, 64), (64, 1), (64, 64))
        self.bundle.kernel("described")[(1,)](5, descriptor)

    def tupled(self) -> None:
        """Launch the kernel that takes a tuple."""
        self.bundle.kernel("tupled")[(1,)]((self.torch.Tensor(0x1000), (5, None)))

    def bound(self) -> None:
        """Launch a kernel that is bound to its grid and one of its arguments."""
        bound = self.bundle.kernel("add").bind((1,), n=5)
        bound(self.torch.Tensor(0x1000), self.torch.Tensor(0x2000))

    def allocated(self) -> None:
        """Launch the kernel that needs scratch memory, which a function of the program's own gives."""
        from nojit import runtime

        runtime.set_allocator(lambda _size, _alignment, _stream: 0x7000_0000)
        try:
            self.bundle.kernel("scratch")[(2,)](PointerTensor(0x1000), 5)
        finally:
            runtime.set_allocator(None)

    def hooked(self) -> None:
        """Launch with hooks, and count those that were entered and not left."""
        from nojit.runtime.observe import hooks

        depth: list[int] = []
        handle = hooks.add(lambda _: depth.append(1), lambda _: depth.pop())
        try:
            self.add()
        finally:
            hooks.remove(handle)
            if depth:
                raise RuntimeError("a hook was entered and not left")

    def preload(self) -> None:
        """Load what `wide` launches."""
        self.bundle.kernel("wide").preload(0)


Drill = tuple[Callable[[World], None], Callable[[World], None]]


def _nothing(_world: World) -> None:
    pass


def _on_other_device(world: World) -> None:
    world.add(0)
    world.add(1)
    world.driver.make_current(0)


def _known_memory(world: World) -> None:
    world.driver.add_memory(0x4000_0000, 4096)


def _known_and_launched(world: World) -> None:
    _known_memory(world)
    world.address()


# what is done before, and what driver calls fail in
DRILLS: dict[str, Drill] = {
    "first launch": (_nothing, World.add),
    "later launch": (World.add, World.add),
    "another variant": (World.add, lambda world: world.add(n=16)),
    "launch on another device": (_on_other_device, lambda world: world.add(1)),
    "first launch with scratch": (_nothing, World.scratch),
    "later launch with scratch": (World.scratch, World.scratch),
    "first wide launch": (_nothing, World.wide),
    "later wide launch": (World.wide, World.wide),
    "address": (_known_memory, World.address),
    "later address": (_known_and_launched, World.address),
    "no tensor": (lambda world: world.driver.make_current(0), World.plain),
    "launch with the same descriptor": (World.described, World.described),
    "launch with another descriptor": (World.described, lambda world: world.described(6)),
    "later launch with a tuple": (World.tupled, World.tupled),
    "later bound launch": (World.bound, World.bound),
    "launch with an allocator": (World.allocated, World.allocated),
    "launch with hooks": (World.add, World.hooked),
    "preload": (_nothing, World.preload),
    "launch after preload": (World.preload, World.wide),
}


def _attempt(act: Callable[[World], None], world: World) -> Raised | None:
    try:
        act(world)
    except Exception as error:  # noqa: BLE001 - reported to the test
        return Raised(type(error).__name__, str(error), getattr(error, "call", None), getattr(error, "code", None))
    return None


def _run(world: World, drill: Drill, function: str, number: int, code: int) -> Outcome:
    from nojit import runtime

    driver = world.driver
    before, act = drill
    before(world)
    start, depth = driver.launch_count(), driver.context()[0]
    driver.fail("*", code, call=number)
    first = _attempt(act, world)
    healthy, between = runtime.healthy(), driver.launch_count()
    again = _attempt(act, world)
    counts = world.torch.counts()
    return Outcome(
        function=function,
        number=number,
        code=code,
        first=first,
        healthy=healthy,
        again=again,
        launches=(between - start, driver.launch_count() - between),
        argument=driver.last_launch().ints()[0] if driver.launch_count() else -1,
        depths=(depth, driver.context()[0]),
        scratch=(counts["allocated"], counts["freed"]),
        libraries=driver.libraries(),
        violations=tuple(driver.violations()),
    )


def _run_as_words(*case: Any) -> dict[str, Any]:
    return asdict(_run(*case))


def _calls_of(world: World, drill: Drill) -> list[str]:
    before, act = drill
    before(world)
    start = len(world.driver.log())
    act(world)
    return [name for name, _ in world.driver.log()[start:]]


def _in_child(work: Callable[[], Any]) -> Any:
    """Return what `work` returns in a fork of this process, as JSON."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        with os.fdopen(write, "w") as stream:
            json.dump(work(), stream)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as stream:
        text = stream.read()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status != 0 or not text:
        raise RuntimeError(f"a case ended with status {status}")
    return json.loads(text)


def main(setup: Setup) -> None:
    """Run every case of a drill."""
    from nojit import runtime

    driver = FakeCuda(Path(setup.driver))
    torch = load_extension(Path(setup.faketorch))
    driver.watch_memory(torch.watch())
    world = World(driver, torch, runtime.load(setup.bundle))
    if driver.calls("*"):
        raise RuntimeError("opening a bundle called the driver")
    # what children would copy only to count references
    gc.collect()
    gc.freeze()
    drill = DRILLS[setup.drill]
    calls = _in_child(lambda: _calls_of(world, drill))
    ordinary = [code for code in setup.codes if code not in setup.special]
    for number, function in enumerate(calls):
        rotated = ordinary[number % len(ordinary) :][:1] if ordinary else []
        for code in setup.codes if function not in calls[:number] else [*setup.special, *rotated]:
            outcome = _in_child(functools.partial(_run_as_words, world, drill, function, number, code))
            sys.stdout.write(json.dumps(outcome) + "\n")


if __name__ == "__main__":
    main(Setup(**json.loads(Path(sys.argv[1]).read_text())))
