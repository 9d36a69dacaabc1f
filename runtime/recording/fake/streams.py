"""Streams and events of simulated GPUs, as torch.cuda offers them. Nothing runs, so they are always done."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final, NoReturn

import torch
from nojit.runtime.recording.fake.answers import Gpu, index_of
from nojit.runtime.recording.fake.patches import Patches
from nojit.runtime.recording.fake.problems import Problems

__all__ = ["kind_of", "new_handle", "patch_streams"]

# of streams that a program creates; the default stream's is 0, as on a GPU
_HANDLES: Final = itertools.count(0x5500_0000_0000, 0x100)


def new_handle() -> int:
    """Return a handle of the driver that no other object has."""
    return next(_HANDLES)


class Stream:
    """A stream of a simulated GPU, as `torch.cuda.Stream`."""

    def __init__(self, gpu: Gpu, device: Any = None, handle: int | None = None, priority: int = 0) -> None:
        self._gpu = gpu
        self.device_index = index_of(device, gpu)
        self.cuda_stream = new_handle() if handle is None else handle
        self.priority = priority
        self.device_type = 1
        self.stream_id = self.cuda_stream

    @property
    def device(self) -> torch.device:
        """The GPU that the stream belongs to."""
        return torch.device("cuda", self.device_index)

    @property
    def _as_parameter_(self) -> Any:
        return SimpleNamespace(value=self.cuda_stream)

    def record_event(self, event: Any = None) -> Any:
        """Return the event, or a new one."""
        return torch.cuda.Event() if event is None else event

    def query(self) -> bool:
        """Return True: all work is done."""
        return True

    def is_capturing(self) -> bool:
        """Return False: nothing captures."""
        return False

    def wait_event(self, event: Any) -> None:
        """Do nothing: all work is done."""

    def wait_stream(self, stream: Any) -> None:
        """Do nothing: all work is done."""

    def synchronize(self) -> None:
        """Do nothing: all work is done."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and (other.device_index, other.cuda_stream) == (
            self.device_index,
            self.cuda_stream,
        )

    def __hash__(self) -> int:
        return hash((self.device_index, self.cuda_stream))

    def __repr__(self) -> str:
        return f"<torch.cuda.Stream device={self.device} cuda_stream={self.cuda_stream:#x}>"


class Event:
    """An event of a simulated GPU, as `torch.cuda.Event`."""

    def __init__(self, problems: Problems) -> None:
        self._problems = problems
        self.cuda_event = new_handle()

    def record(self, stream: Any = None) -> None:
        """Do nothing: all work is done."""

    def wait(self, stream: Any = None) -> None:
        """Do nothing: all work is done."""

    def synchronize(self) -> None:
        """Do nothing: all work is done."""

    def query(self) -> bool:
        """Return True: all work is done."""
        return True

    def elapsed_time(self, end: Any) -> NoReturn:  # noqa: ARG002 - torch's signature
        """Stop the program: nothing ran, so there is no time."""
        self._problems.stop("torch.cuda.Event.elapsed_time(), a time on the GPU")


class Streams(threading.local):
    """The current streams of a thread, by device.

    Args:
        gpu: the simulated GPUs.
    """

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._current: dict[int, Any] = {}
        self._entered: list[Any] = []

    def default(self, device: Any = None) -> Stream:
        """Return the default stream of a device."""
        return Stream(self._gpu, device, 0)

    def current(self, device: Any = None) -> Any:
        """Return the current stream of a device."""
        index = index_of(device, self._gpu)
        return self._current.get(index) or self.default(index)

    def raw(self, device: Any = None) -> int:
        """Return the handle of the current stream of a device."""
        handle: int = self.current(device).cuda_stream
        return handle

    def set(self, stream: Any) -> None:
        """Make a stream and its device the current ones."""
        if stream is not None:
            self._gpu.current = stream.device_index
            self._current[stream.device_index] = stream

    def use(self, stream: Any) -> Use:
        """Return a block in which a stream and its device are the current ones; None keeps them."""
        return Use(self, stream)

    def swap(self, stream: Any) -> Callable[[], None]:
        """Make a stream and its device the current ones; return a function that restores the previous ones."""
        device, previous = self._gpu.current, self._current.get(stream.device_index)
        self.set(stream)

        def restore() -> None:
            self._current[stream.device_index] = previous
            self._gpu.current = device

        return restore

    def enter(self, stream: Any) -> Any:
        """Enter ``with stream:``."""
        self._entered.append(self.use(stream))
        self._entered[-1].__enter__()
        return stream

    def leave(self, _stream: Any, *_error: object) -> None:
        """Leave ``with stream:``."""
        self._entered.pop().__exit__(None, None, None)


class Use:
    """A block with a current stream, as `torch.cuda.StreamContext`."""

    def __init__(self, streams: Streams, stream: Any) -> None:
        self._streams = streams
        self._restore: list[Callable[[], None]] = []
        self.stream = stream

    def __enter__(self) -> None:
        if self.stream is not None:
            self._restore.append(self._streams.swap(self.stream))

    def __exit__(self, *_error: object) -> None:
        if self._restore:
            self._restore.pop()()


def kind_of(base: type[Any], make: Callable[..., Any]) -> Any:
    """Return a class that creates instances with `make`, for a module attribute that programs call and test against."""

    class Meta(type):
        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            return make(*args, **kwargs)

        def __instancecheck__(cls, instance: Any) -> bool:
            return isinstance(instance, base)

    return Meta(base.__name__, (), {"__doc__": base.__doc__})


def patch_streams(gpu: Gpu, problems: Problems, patches: Patches) -> None:
    """Replace torch's streams and events; the arguments are those of `patch_torch`."""
    streams = Streams(gpu)

    def stream(device: Any = None, priority: int = 0, **_kwargs: Any) -> Stream:
        return Stream(gpu, device, None, priority)

    def external(stream_ptr: int, device: Any = None, **_kwargs: Any) -> Stream:
        return Stream(gpu, device, stream_ptr)

    kinds = {"Stream": kind_of(Stream, stream), "Event": kind_of(Event, lambda *_args, **_kwargs: Event(problems))}
    found: dict[str, Any] = {
        **kinds,
        "ExternalStream": kind_of(Stream, external),
        "StreamContext": kind_of(Use, streams.use),
        "stream": streams.use,
        "set_stream": streams.set,
        "current_stream": streams.current,
        "default_stream": streams.default,
    }
    for name, value in found.items():
        patches.put(torch.cuda, name, value)
    for name, value in kinds.items():
        patches.put(torch, name, value)
    patches.put(Stream, "__enter__", lambda entered: streams.enter(entered))  # noqa: PLW0108 - a method takes the stream
    patches.put(Stream, "__exit__", lambda left, *error: streams.leave(left, *error))  # noqa: PLW0108 - as above
    answers: dict[str, Callable[..., Any]] = {
        "current_stream": streams.current,
        "set_stream": streams.set,
        "synchronize": lambda *_device: None,
    }
    patches.answer(getattr(torch, "accelerator", None), answers)
    # Triton's driver and Inductor ask here
    patches.put(torch._C, "_cuda_getCurrentRawStream", streams.raw)  # noqa: SLF001 - they call it so
