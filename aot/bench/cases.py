"""The measured calls: the same kernels, values and argument lists for every contender. Pure."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["BLOCK", "CASES", "LENGTH", "NUM_WARPS", "Case"]

BLOCK = 1024
NUM_WARPS = 4
# elements of each vector: one block
LENGTH = 1024


@dataclass(frozen=True, slots=True)
class Case:
    """One kernel of `kernels.py`, and its call."""

    arguments: int
    """Number of arguments, without constexprs."""
    inputs: tuple[str, ...]
    """Names of the input vectors."""
    ints: tuple[str, ...]
    """Names of the integers; `n` first."""
    by_name: bool
    """Whether the Triton-style call passes the integers by name."""

    @property
    def kernel(self) -> str:
        """The kernel's name, in the bundle and in `kernels.py`."""
        return f"launch_{self.arguments}"

    @property
    def tensors(self) -> tuple[str, ...]:
        """Names of the vectors; the output last."""
        return (*self.inputs, "out_ptr")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the arguments, in order."""
        return (*self.tensors, *self.ints)

    @property
    def numbers(self) -> dict[str, int]:
        """Values of the integers: `n`, and multiples of 16, so that every hint holds."""
        return {name: LENGTH if name == "n" else 16 * place for place, name in enumerate(self.ints)}

    @property
    def result(self) -> tuple[int, int]:
        """Factor and offset of the result: ``factor * lane + offset`` at each lane, if every input holds its lane numbers."""
        if not self.inputs:
            return 0, 1
        return len(self.inputs), sum(value for name, value in self.numbers.items() if name != "n")

    def positional(self) -> str:
        """Return the argument list by position: ``x_ptr, y_ptr, out_ptr, n``."""
        return ", ".join(self.names)

    def given(self) -> str:
        """Return the argument list with integers by name if `by_name`, without the config."""
        ints = [f"{name}={name}" if self.by_name else name for name in self.ints]
        return ", ".join((*self.tensors, *ints))

    def as_triton(self) -> str:
        """Return the argument list for Triton's JIT, with the config by name."""
        config = [f"BLOCK={BLOCK}"] if self.inputs else []
        config += [f"num_warps={NUM_WARPS}"] if self.by_name else []
        return ", ".join((self.given(), *config))


def _numbers(count: int) -> tuple[str, ...]:
    return ("n", *(f"s{place}" for place in range(count - 1)))


CASES = {
    case.arguments: case
    for case in (
        Case(1, (), (), by_name=False),
        Case(4, ("x_ptr", "y_ptr"), _numbers(1), by_name=False),
        Case(12, ("a_ptr", "b_ptr", "c_ptr"), _numbers(8), by_name=True),
        Case(30, ("a_ptr", "b_ptr", "c_ptr", "d_ptr", "e_ptr"), _numbers(24), by_name=False),
    )
}
