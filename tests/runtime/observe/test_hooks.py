"""Hooks around launches: what they see, and what may be one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from nojit.runtime.errors import ArgumentError
from nojit.runtime.observe import hooks

from tests.fakecuda import FakeCuda
from tests.runtime.conftest import Make


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[hooks.Handle], hooks.Handle]]:
    """Take hooks away when a test is over."""
    handles: list[hooks.Handle] = []

    def keep(handle: hooks.Handle) -> hooks.Handle:
        handles.append(handle)
        return handle

    yield keep
    for handle in handles:
        hooks.remove(handle)


def test_hooks_see_the_launch(make: Make, tensor: Any, fakecuda: FakeCuda, kept: Callable[..., Any]) -> None:
    seen: list[tuple[str, hooks.LaunchInfo]] = []
    kept(hooks.add(lambda info: seen.append(("enter", info)), lambda info: seen.append(("leave", info))))
    add = make({"x": "*fp16"}, configs=[{"num_warps": 4, "num_ctas": 2}])
    stream = fakecuda.stream(1)
    add[(3, 2, 5)](tensor(0x1000, device=1), stream=stream)
    assert [name for name, _ in seen] == ["enter", "leave"]
    for _, info in seen:
        assert (info.kernel, info.grid, info.stream, info.device) == ("add", (3, 2, 5), stream, 1)
        assert info.variant.startswith("add-")
        assert "of bundle" in info.variant
    # clusters multiply the first dimension of what the driver is told
    assert fakecuda.last_launch().grid == (6, 2, 5)


def test_ranges_are_closed_again(make: Make, fakecuda: FakeCuda, kept: Callable[..., Any]) -> None:
    log: list[str] = []
    kept(hooks.add_ranges(log.append, lambda: log.append("end")))
    add = make({"n": "i32"})
    add[(1,)](1)
    fakecuda.fail("cuLaunchKernel", 1, call=0)
    with pytest.raises(Exception, match="cuLaunchKernel failed"):
        add[(1,)](1)
    assert log == ["add", "end"] * 2


def test_hooks_of_triton_get_its_metadata(make: Make, fakecuda: FakeCuda, kept: Callable[..., Any]) -> None:
    seen: list[Any] = []
    kept(hooks.add_triton(seen.append, seen.append))
    make({"n": "i32"})[(4,)](1)
    for metadata in seen:
        facts = metadata.get()
        assert (facts["name"], facts["grid"], facts["stream"]) == ("add", (4, 1, 1), 0)
    assert len(seen) == 2


@pytest.mark.parametrize("wrong", [5, "print", [print]])
def test_what_cannot_be_called_is_no_hook(make: Make, fakecuda: FakeCuda, wrong: Any) -> None:
    for register in (
        lambda: hooks.add(wrong),
        lambda: hooks.add(None, wrong),
        lambda: hooks.add_ranges(print, wrong),
        lambda: hooks.add_triton(wrong, print),
        lambda: hooks.add_ranges(None, print),  # type: ignore[arg-type]
    ):
        with pytest.raises(ArgumentError, match=r"expected a function.*, got .* - at a launch hook"):
            register()
    make({"n": "i32"})[(1,)](1)
    assert fakecuda.launch_count() == 1
