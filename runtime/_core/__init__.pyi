from collections.abc import Callable, Sequence
from typing import Any, Self, TypeAlias

from nojit.runtime.format import BundleIndex, KernelEntry, Section, TargetInfo

State: TypeAlias = tuple[Callable[[], Any], Any] | tuple[dict[str, Any], str, Any]

Entry: TypeAlias = tuple[str, tuple[int, ...], int, int, int, bool]
"""What an image is held against: symbol, bytes of each param, warps of a block, CTAs of a cluster, compute capability, whether arch-specific."""

_Classes: TypeAlias = tuple[type[BundleIndex], type[TargetInfo], type[KernelEntry], type[Section]]

ARGUMENTS_MAX: int
OPAQUE_BASE: int
OPAQUE_KIND_SHIFT: int
# limits of bundle format 1
HEADER_BYTES: int
FORMAT_VERSION: int
INDEX_BYTES_MAX: int
SECTION_BYTES_MAX: int
GROUP_BYTES_MAX: int
IMAGE_BYTES_MAX: int
KERNELS_MAX: int
VARIANTS_MAX: int
FREE_BYTES: int
SECTION_RATIO_MAX: int
PAYLOAD_RATIO_MAX: int
WINDOW_LOG_MAX: int
JSON_BYTES_MAX: int
JSON_COMMAS_MAX: int
JSON_DIGITS_MAX: int

def driver_version() -> int: ...
def find_driver() -> bool: ...
def device_count() -> int: ...
def device_capability(device: int, /) -> int: ...
def running_capability() -> int: ...
def device_facts(device: int, /) -> tuple[str, int, int]: ...
def current_device() -> int: ...
def healthy() -> bool: ...
def forget_images() -> None: ...
def set_allocator(allocator: Callable[[int, int, int], Any] | None, /) -> None: ...
def set_hooks(
    enter: Callable[[str, Plan, tuple[int, int, int], int], Any] | None, leave: Callable[[Any], Any] | None, /
) -> None: ...
def check_image(
    image: bytes,
    symbol: str,
    sizes: tuple[int, ...],
    num_warps: int,
    num_ctas: int,
    sm: int,
    arch_specific: bool,
    where: object,
    /,
) -> tuple[list[tuple[int, int]], int, int]: ...
def load_image(
    image: bytes, digest: bytes, entry: Entry, min_driver: int, device: int, where: object, /
) -> tuple[Function, bool]: ...
def read_cubin(image: bytes, /) -> tuple[tuple[tuple[Any, ...], ...], int, bool, int, int, bool]: ...
def read_sections(image: bytes, /) -> list[tuple[bytes, bytes]]: ...
def read_header(raw: bytes, where: object, /) -> tuple[int, int, bytes]: ...
def read_index(raw: bytes, where: object, classes: _Classes, /) -> BundleIndex: ...
def check_json(raw: bytes, where: object, /) -> None: ...
def is_printable(text: str, /) -> bool: ...
def check_frame(frame: bytes, raw_bytes: int, where: object, /) -> None: ...
def read_frame(
    frame: bytes, raw_bytes: int, decompress: Callable[[memoryview, int], bytes] | None, where: object, /
) -> bytes: ...
def sha256(data: bytes, /) -> bytes: ...
def check_section(stored_bytes: int, raw_bytes: int, where: object, /) -> None: ...
def split_section(raw: bytes, images: int, groups: int, where: object, /) -> tuple[bytes, bytes]: ...

class Placement:
    def __new__(cls, raw: bytes, images: int, payload_bytes: int, where: object, /) -> Self: ...
    def find(self, image: int, /) -> tuple[int, int, int, int, bytes, int, int]: ...
    def groups(self) -> tuple[tuple[int, int, int, bytes], ...]: ...

class Bundle:
    digest: str
    size_bytes: int

    def __new__(
        cls, path: str, decompress: Callable[[memoryview, int], bytes] | None, verify: Callable[[str], object] | None, /
    ) -> Self: ...
    def index(self, classes: _Classes, /) -> BundleIndex: ...
    def find(self, kernel: str, /) -> int: ...
    def check_index(self) -> None: ...
    def section(self, kernel: int, /) -> tuple[bytes, bytes]: ...
    def image(self, kernel: int, placement: Placement, image: int, /) -> bytes: ...
    def read(self, start: int, size: int, /) -> bytes: ...

def read_table(
    raw: bytes,
    rows: int,
    image_count: int,
    is_type: Callable[[str], bool],
    decode_value: Callable[[bytes], object],
    /,
) -> tuple[Any, ...] | None: ...
def read_tuning(raw: bytes, meanings: int, configs: int, /) -> Any: ...
def tuning_columns(rows: bytes, /) -> tuple[Any, Any, Any] | None: ...
def rank_configs(
    rows: bytes, key: tuple[int, ...], costs: bytes, multiprocessors: int, /
) -> tuple[int, ...] | None: ...
def read_launch(launch: bytes, layout_of: Callable[[int], object], /) -> Any: ...
def plain_row(
    table: Any, row: int, launch: Any, places: dict[str, int], arch: int, constant: Callable[[Any], tuple[int, int]], /
) -> tuple[tuple[str, tuple[int, ...], int, int], dict[str, Any]] | None: ...
def postfix(text: str, /) -> str | tuple[str, int]: ...
def map_fault(kind: str, tensor_map: object, /) -> str | None: ...
def tuning_key(program: bytes, bucket: int, slots: tuple[tuple[int, int], ...], /) -> int: ...
def assemble(
    text: str, values: dict[str, Any], slots: dict[str, int], constant: Callable[[Any], tuple[int, int]], /
) -> bytes: ...
def run_program(
    program: bytes, slots: tuple[tuple[int, int], ...], /
) -> tuple[int, int] | tuple[int, tuple[int, int], tuple[int, int]]: ...

class Function:
    def load(self, device: int, /) -> None: ...

class Plan:
    label: object
    payload: Any
    device: int

    def __new__(
        cls,
        *,
        label: object,
        function: Function,
        device: int,
        arguments: int,
        slots: tuple[tuple[int, int, int, int, str], ...],
        maps: tuple[tuple[int, int, int, int, int, tuple[int, ...], bool], ...],
        grid: tuple[bytes, ...],
        meta: dict[str, Any],
        payload: Any,
        block_threads: int,
        num_ctas: int,
        shared_bytes: int,
        cooperative: bool,
        pdl: bool,
        global_scratch: tuple[int, int],
        profile_scratch: tuple[int, int],
        outhinted: bool,
    ) -> Self: ...

class Spec:
    def __new__(
        cls,
        table: Any,
        slots: dict[str, int],
        options: int,
        interner: Any,
        programs: tuple[bytes, ...],
        tuning: tuple[bytes, ...] | None = None,
        bucket: int = 2,
        arch: int = 0,
    ) -> Self: ...
    def __len__(self) -> int: ...

class Geometry:
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...] | None
    steps: tuple[int, ...] | None

    def __new__(
        cls,
        strides: Sequence[int],
        shape: Sequence[int],
        box: Sequence[int] | None = None,
        steps: Sequence[int] | None = None,
    ) -> Self: ...
    def __call__(self, base: Any, /) -> Described: ...

class Described:
    base: Any
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    block_shape: None
    geometry: Geometry

    def __new__(
        cls,
        base: Any,
        strides: Sequence[int],
        shape: Sequence[int] | None = None,
        box: Sequence[int] | None = None,
        steps: Sequence[int] | None = None,
    ) -> Self: ...

class Plain:
    def __new__(
        cls,
        tensors: tuple[type[Any], ...],
        requires_grad: Any,
        is_negated: Callable[[Any], bool],
        grad_enabled: Callable[[], bool],
        states: tuple[State, ...],
    ) -> Self: ...
    def __call__(self, devices: frozenset[str], /, *tensors: Any) -> bool: ...

class Recipe:
    def __new__(
        cls,
        operands: int,
        steps: tuple[
            tuple[Callable[..., Any], tuple[Any, ...], tuple[str, ...], tuple[tuple[int, int], ...], bool], ...
        ],
        results: tuple[int, ...],
    ) -> Self: ...
    def __call__(self, *operands: Any) -> Any: ...

class Memo:
    def __new__(
        cls,
        plain: Plain,
        states: tuple[State, ...],
        operands: int,
        limit: int,
        writes: bool = False,
        in_place: int = 0,
    ) -> Self: ...
    def __call__(self, *call: Any) -> Any: ...
    def __len__(self) -> int: ...
    def remember(self, recipe: Recipe, /, *call: Any) -> None: ...
    def forget(self) -> None: ...

class Launcher:
    def __call__(self, *args: Any, **kwargs: Any) -> None: ...

class Dispatcher:
    name: str
    @property
    def _last(self) -> Plan | None: ...
    def __init__(
        self,
        name: str,
        params: tuple[tuple[str, bool] | tuple[str, bool, Any], ...],
        options: tuple[str, ...],
        strings: dict[str, int],
    ) -> None: ...
    def __call__(self, *args: Any, **kwargs: Any) -> None: ...
    def __getitem__(self, grid: tuple[int, ...] | list[int] | Callable[[dict[str, Any]], Any], /) -> Launcher: ...
    def bind(
        self, grid: tuple[int, ...] | list[int] | Callable[[dict[str, Any]], Any] | None = None, /, **fixed: Any
    ) -> Launcher: ...
    def _warm(self, *args: Any, **kwargs: Any) -> Plan: ...
    def _facts(
        self, *args: Any, **kwargs: Any
    ) -> tuple[int | None, tuple[dict[str, tuple[str, str, Any]], dict[str, Any], dict[str, Any]]]: ...
