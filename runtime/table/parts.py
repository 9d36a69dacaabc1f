"""The parts of a variant table as records: params, cases, configs, launches. A first call needs none of them.

Importing this module has the binding make them (`nojit.runtime._core`).
"""

from __future__ import annotations

from nojit.runtime import _core
from nojit.runtime.base.frozen_record import Record
from nojit.runtime.table.tuning import TunedDevice, Tuning, TuningBlock, TuningTable
from nojit.runtime.values import encode_value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from nojit.runtime.base.strict_json import Json
    from nojit.runtime.values import Value

__all__ = [
    "MISSING",
    "Axis",
    "Case",
    "Config",
    "Derived",
    "Launch",
    "Missing",
    "Param",
    "Slot",
    "TensorMap",
    "config_json",
]


class Missing:
    """The type of `MISSING`: a param without a default."""

    def __repr__(self) -> str:
        return "MISSING"

    def __reduce__(self) -> str:
        # unpickled, it is the very same object
        return "MISSING"


MISSING = Missing()


class Param(Record):
    """A parameter of the kernel function, in the function's order."""

    name: str
    constexpr: bool
    default: Value | Missing = MISSING

    @property
    def is_rest(self) -> bool:
        """Whether it is the function's `*args`, which are known by their default."""
        return not self.constexpr and self.default == ()


class Axis(Record):
    """One axis of the matrix that a call's case is a point of."""

    name: str
    is_type: bool
    """Whether its values are only used in types; otherwise the axis is a constexpr param."""
    values: tuple[Value, ...]


class Case(Record):
    """The case of a call: its types and the constexprs that a caller chooses."""

    signature: int
    """Index into the table's signatures."""
    values: tuple[int, ...]
    """For each axis, an index into its values."""


class Config(Record):
    """One setting of the tunable constexprs and options: changes the speed, not what is computed."""

    constexprs: tuple[tuple[str, Value], ...]
    options: tuple[tuple[str, Value], ...]
    """Launch options such as ``num_warps``, each spelled out."""
    requires: str
    """An expression that must hold for the config to run at all; empty if it always may."""


class Derived(Record):
    """A constexpr that follows from the call and the chosen config."""

    name: str
    expression: str


class Slot(Record):
    """One parameter of the compiled kernel."""

    source: str
    """Its source: a param of the kernel function, a leaf of one (``x.1.0``), a part of a descriptor (``x.shape.0``),
    or one of the scratch pointers of `nojit.runtime.bundle.format`."""
    type: str
    """Triton's spelling: ``*fp16``, ``i32``, ``fp32``; or ``tensormap``."""

    @property
    def size_bytes(self) -> int:
        """Bytes that the param takes; it is aligned to as many, a tensor map to 64.

        Raises:
            ValueError: a type that is passed in no single param.
        """
        size = _core.param_bytes(self.type)
        if not size:
            raise ValueError(f"expected a scalar or pointer type, got {self.type!r} for {self.source!r}")
        return size


class TensorMap(Record):
    """How the tensor map of one descriptor is encoded; the call gives address, shape and strides."""

    source: str
    """The leaf that is the descriptor: a param, or ``x.1.0``."""
    swizzle: int
    """A ``CUtensorMapSwizzle``."""
    element_bytes: int
    element_type: int
    """A ``CUtensorMapDataType``."""
    block: tuple[int, ...]
    """Elements of the block along each dimension as compiled, which can be less than the descriptor's own."""
    fp4_padded: bool
    """Whether two values of 4 bits lie in each byte, with padding."""


class Launch(Record):
    """The facts that a launch needs beside its arguments."""

    symbol: str
    layout: Sequence[Slot]
    """The params of the compiled kernel. A tuple, or as read from a bundle: taken apart when it is asked for."""
    num_warps: int
    """As compiled, which warp specialization can make more than asked: a block has 32 times as many threads."""
    num_ctas: int
    shared_bytes: int
    """Dynamic shared memory of a block."""
    global_scratch_bytes: int
    """Scratch of one CTA."""
    global_scratch_align: int
    profile_scratch_bytes: int
    profile_scratch_align: int
    cooperative: bool
    pdl: bool
    """Programmatic dependent launch."""
    tensor_maps: tuple[TensorMap, ...] = ()
    """One for each slot that is a tensor map, in the slots' order."""


def config_json(config: Config) -> Json:
    """Spell a config as the table stores it."""
    return {
        "constexprs": [[key, encode_value(value)] for key, value in config.constexprs],
        "options": [[key, encode_value(value)] for key, value in config.options],
        "requires": config.requires,
    }


_core.take_records(
    (Param, Axis, Derived, Case, Config, Tuning, TuningTable, TuningBlock, TunedDevice),
    MISSING,
    Launch,
    TensorMap,
    Slot,
)
