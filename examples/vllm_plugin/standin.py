"""A stand-in for the parts of vLLM that meet the plugin: how it loads plugins, and how it warms kernels up.

vLLM has more: it derives the keys from `dispatch` by its syntax tree, and its engine activates a registry of its own.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any

GROUP = "vllm.general_plugins"


def load_plugins() -> None:
    """Call every plugin of the group."""
    for each in entry_points(group=GROUP):
        each.load()()


@dataclass(frozen=True)
class WarmupTensor:
    """A tensor without memory: Triton asks it for a dtype and an alignment."""

    dtype: Any
    aligned: bool = True

    def data_ptr(self) -> int:
        """Return an address that is a multiple of 16, or not."""
        return 0 if self.aligned else 1


class JitKernel:
    """A kernel that owns its compile keys. A subclass has `dispatch`, `get_warmup_keys` and `compile`."""

    get_warmup_keys: Callable[[], Iterable[Any]]
    compile: Callable[[Any], None]

    def warmup(self) -> int:
        """Make every key available once, and return how many there are."""
        keys = dict.fromkeys(self.get_warmup_keys())
        for each in keys:
            self.compile(each)
        return len(keys)
