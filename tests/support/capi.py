"""The C interface of libnojit by ctypes: calls as Python makes them, turned into the structs of nojit.h."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from nojit.aot.bench.c_calls import Arg, Call, Keyword, LaunchSetup, Value, library_path
from nojit.runtime.values import DType, FunctionRef

__all__ = [
    "DTYPES",
    "BundleInfo",
    "CApi",
    "CBundle",
    "CError",
    "CErrorFacts",
    "CKernel",
    "CPlan",
    "ConfigInfo",
    "Event",
    "KernelInfo",
    "Options",
    "ParamInfo",
    "PlanInfo",
    "Reason",
    "ValueInfo",
    "library_path",
]

DTYPES = ("", "i1", "u1", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "fp16", "bf16", "fp32", "fp64",
          "fp8e4nv", "fp8e5", "fp8e4b8", "fp8e5b16", "fp8e4b15")  # fmt: skip
"""Triton's names of dtypes, by the numbers of `nj_dtype`."""
_TORCH = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64", "int8": "i8", "int16": "i16", "int32": "i32",
          "int64": "i64", "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64", "bool": "i1",
          "float8_e4m3fn": "fp8e4nv", "float8_e5m2": "fp8e5"}  # fmt: skip
KINDS = (
    "default",
    "none",
    "bool",
    "int",
    "uint",
    "float",
    "pointer",
    "tuple",
    "descriptor",
    "text",
    "dtype",
    "function",
)
"""Kinds of arguments, by the numbers of `nj_arg_kind`."""
_NONE, _BOOL, _INT, _UINT, _FLOAT, _POINTER, _TUPLE, _DESCRIPTOR, _TEXT, _DTYPE, _FUNCTION = range(1, 12)
CURRENT_DEVICE = -1


class CErrorFacts(ctypes.Structure):
    """An `nj_error` as the library fills it."""

    _fields_ = (
        ("code", ctypes.c_int),
        ("argument", ctypes.c_int),
        ("driver_code", ctypes.c_int),
        ("system_code", ctypes.c_int),
        ("call", ctypes.c_char * 32),
        ("rule", ctypes.c_char * 32),
        ("what", ctypes.c_char * 384),
        ("got", ctypes.c_char * 384),
        ("where", ctypes.c_char * 640),
        ("reserved", ctypes.c_char * 48),
    )


_HEADER = (Path(__file__).resolve().parents[2] / "runtime/engine/include/nojit.h").read_text(encoding="utf-8")
_CODES = {name: int(code) for name, code in re.findall(r"^    NJ_ERROR_(\w+) = (\d+),", _HEADER, re.MULTILINE)}
_READING = ("FORMAT", "INTEGRITY", "SYSTEM", "MEMORY", "NEEDS")
LISTED = {
    name: {_CODES[word] for each in re.findall("[A-Z_]{4,}|reading", words) for word in (_READING if each == "reading" else (each,))}
    for words, name in re.findall(r"^ \*   Errors +(.*?) \*/\nNJ_API [^;]*?\b(nj_\w+)\(", _HEADER, re.MULTILINE | re.DOTALL)
}  # fmt: skip
"""The codes that the header lists for each function that can fail."""


class CError(Exception):
    """An `nj_error` that a function filled, which the header lists."""

    def __init__(self, error: CErrorFacts, function: str) -> None:
        assert error.code in LISTED[function], f"nojit.h does not list code {error.code} for {function}"
        self.code = error.code
        self.argument = error.argument
        self.driver_code = error.driver_code
        self.rule = error.rule.decode()
        self.what = error.what.decode()
        self.got = error.got.decode(errors="replace")
        self.where = error.where.decode(errors="replace")
        super().__init__(f"{self.code}: {self.what}, got {self.got} - at {self.where}")


class _Descriptor(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_size_t),
        ("address", ctypes.c_uint64),
        ("dtype", ctypes.c_uint32),
        ("rank", ctypes.c_uint32),
        ("shape", ctypes.c_int64 * 5),
        ("strides", ctypes.c_int64 * 5),
        ("block", ctypes.c_uint32 * 5),
        ("box", ctypes.c_uint16 * 5),
        ("steps", ctypes.c_uint8 * 5),
        ("pads_nan", ctypes.c_uint8),
        ("rounds_tf32", ctypes.c_uint8),
        ("reserved", ctypes.c_uint8 * 3),
    )


class _Claim(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_size_t),
        ("path", ctypes.c_char_p),
        ("digest", ctypes.c_char_p),
        ("statement", ctypes.c_void_p),
        ("statement_bytes", ctypes.c_size_t),
    )


class Event(ctypes.Structure):
    """An `nj_event`."""

    _fields_ = (
        ("size", ctypes.c_size_t),
        ("kind", ctypes.c_int),
        ("device", ctypes.c_int),
        ("path", ctypes.c_char_p),
        ("digest", ctypes.c_char_p),
        ("kernel", ctypes.c_char_p),
        ("variant", ctypes.c_size_t),
        ("nanoseconds", ctypes.c_uint64),
    )


VERIFY = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(_Claim))
DECOMPRESS = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t
)
ALLOCATE = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p,
    ctypes.POINTER(ctypes.c_uint64),
)  # fmt: skip
RELEASE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int, ctypes.c_void_p)
FIND_STREAM = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)
LOG = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(Event))


class Options(ctypes.Structure):
    """An `nj_options`."""

    _fields_ = (
        ("size", ctypes.c_size_t),
        ("user", ctypes.c_void_p),
        ("verify", VERIFY),
        ("decompress", DECOMPRESS),
        ("allocate", ALLOCATE),
        ("release", RELEASE),
        ("find_stream", FIND_STREAM),
        ("log", LOG),
    )

    @staticmethod
    def of(**callbacks: Any) -> Options:
        return Options(size=ctypes.sizeof(Options), **callbacks)


class BundleInfo(ctypes.Structure):
    """An `nj_bundle_info`."""

    _fields_ = (
        ("size", ctypes.c_size_t),
        ("name", ctypes.c_char_p),
        ("version", ctypes.c_char_p),
        ("arch", ctypes.c_char_p),
        ("image_arch", ctypes.c_char_p),
        ("digest", ctypes.c_char_p),
        ("min_driver", ctypes.c_int),
        ("kernel_count", ctypes.c_size_t),
        ("attachment_count", ctypes.c_size_t),
    )


class ParamInfo(ctypes.Structure):
    """An `nj_param_info`."""

    _fields_ = (
        ("size", ctypes.c_size_t),
        ("name", ctypes.c_char_p),
        ("is_constexpr", ctypes.c_int),
        ("has_default", ctypes.c_int),
    )


class KernelInfo(ctypes.Structure):
    """An `nj_kernel_info`."""

    _fields_ = (
        ("size", ctypes.c_size_t),
        ("name", ctypes.c_char_p),
        ("param_count", ctypes.c_size_t),
        ("variant_count", ctypes.c_size_t),
        ("config_count", ctypes.c_size_t),
    )


class ConfigInfo(ctypes.Structure):
    """An `nj_config_info`."""

    _fields_ = (
        ("size", ctypes.c_size_t),
        ("settings", ctypes.POINTER(Keyword)),
        ("setting_count", ctypes.c_size_t),
    )


class PlanInfo(ctypes.Structure):
    """An `nj_plan_info`."""

    _fields_ = (
        ("size", ctypes.c_size_t),
        ("symbol", ctypes.c_char_p),
        ("variant", ctypes.c_size_t),
        ("config", ctypes.c_size_t),
        ("device", ctypes.c_int),
        ("num_warps", ctypes.c_uint32),
        ("num_ctas", ctypes.c_uint32),
        ("shared_bytes", ctypes.c_uint32),
        ("registers", ctypes.c_uint32),
        ("value_count", ctypes.c_size_t),
    )


class ValueInfo(ctypes.Structure):
    """An `nj_plan_value_info`."""

    _fields_ = (
        ("size", ctypes.c_size_t),
        ("name", ctypes.c_char_p),
        ("type", ctypes.c_char_p),
        ("kind", ctypes.c_uint32),
        ("dtype", ctypes.c_uint32),
        ("bytes", ctypes.c_size_t),
        ("hint", ctypes.c_int),
    )


class Reason(ctypes.Structure):
    """An `nj_reason`."""

    _fields_ = (
        ("size", ctypes.c_size_t),
        ("code", ctypes.c_int),
        ("variant", ctypes.c_size_t),
        ("config", ctypes.c_size_t),
        ("name", ctypes.c_char_p),
        ("expected", ctypes.c_char_p),
        ("got", ctypes.c_char_p),
    )


_VISITOR = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(Reason))


def _constant(arg: Arg) -> Any:
    """Return the value of a constexpr or an option."""
    if arg.kind == _TUPLE:
        return tuple(map(_constant, (Arg * arg.count).from_address(arg.value.pointer)))
    if arg.kind in (_TEXT, _DTYPE, _FUNCTION):
        text = arg.value.text.decode()
        return text if arg.kind == _TEXT else (DType if arg.kind == _DTYPE else FunctionRef)(text)
    if arg.kind == _BOOL:
        return arg.value.integer != 0
    return {_INT: arg.value.integer, _UINT: arg.value.unsigned_integer, _FLOAT: arg.value.number}.get(arg.kind)


def _sized(kind: Any) -> Any:
    return kind(size=ctypes.sizeof(kind))


def _dtype_of(tensor: Any) -> int:
    name = str(tensor.dtype).rpartition(".")[2]
    return DTYPES.index(_TORCH.get(name, name))


def _address_of(tensor: Any) -> int:
    return tensor.data_ptr() if hasattr(tensor, "data_ptr") else int(tensor.address)


class _Pen:
    """Turns values into arguments, and keeps what they point to."""

    def __init__(self) -> None:
        self.kept: list[Any] = []

    def arg(self, value: Any) -> Arg:  # noqa: PLR0911 - one for each kind
        if value is None or isinstance(value, Arg):
            return value or Arg(_NONE)
        if isinstance(value, bool):
            return Arg(_BOOL, 0, Value(integer=value))
        if isinstance(value, int):
            return (
                Arg(_INT, 0, Value(integer=value)) if value < 1 << 63 else Arg(_UINT, 0, Value(unsigned_integer=value))
            )
        if isinstance(value, float):
            return Arg(_FLOAT, 0, Value(number=value))
        if isinstance(value, tuple | list):
            items = (Arg * len(value))(*map(self.arg, value))
            self.kept.append(items)
            return Arg(_TUPLE, 0, Value(pointer=ctypes.addressof(items)), len(value))
        if isinstance(value, str | DType | FunctionRef):
            kind = _TEXT if isinstance(value, str) else _DTYPE if isinstance(value, DType) else _FUNCTION
            return Arg(kind, 0, Value(text=str(getattr(value, "name", value)).encode()))
        if hasattr(value, "block_shape"):
            made = self.descriptor(value)
            self.kept.append(made)
            return Arg(_DESCRIPTOR, 0, Value(pointer=ctypes.addressof(made)))
        return Arg(_POINTER, _dtype_of(value), Value(unsigned_integer=_address_of(value)))

    def descriptor(self, value: Any) -> _Descriptor:
        made = _sized(_Descriptor)
        made.address, made.dtype, made.rank = _address_of(value.base), _dtype_of(value.base), len(value.shape)
        for field, numbers in (("shape", value.shape), ("strides", value.strides), ("block", value.block_shape or ())):
            getattr(made, field)[: len(numbers)] = list(numbers)
        for field in ("box", "steps"):
            numbers = getattr(value, field, None) or ()
            getattr(made, field)[: len(numbers)] = list(numbers)
        made.pads_nan = getattr(value, "padding", "zero") == "nan"
        made.rounds_tf32 = getattr(value, "round_f32_to_tf32", False)
        return made

    def call(self, args: Sequence[Any], named: Mapping[str, Any]) -> Any:
        listed = (Arg * len(args))(*map(self.arg, args))
        keywords = (Keyword * len(named))(*(Keyword(name.encode(), self.arg(value)) for name, value in named.items()))
        return ctypes.byref(Call(listed, len(args), keywords, len(named)))


class CPlan:
    """An `nj_plan`."""

    def __init__(self, api: CApi, handle: int) -> None:
        self._api, self.handle = api, ctypes.c_void_p(handle)

    def about(self) -> PlanInfo:
        return self._api.fill("nj_plan_about", self.handle, PlanInfo)

    def value(self, number: int) -> ValueInfo:
        return self._api.fill("nj_plan_value", self.handle, ValueInfo, number)

    def values(self) -> list[tuple[str, str, int, int]]:
        """Return name, type, bytes and hint of each value."""
        listed = []
        for number in range(self.about().value_count):
            info = self.value(number)
            listed.append((info.name.decode(), info.type.decode(), info.bytes, info.hint))
        return listed

    def kinds(self) -> list[tuple[str, str]]:
        """Return the kind and the dtype of each value, as `nojit.h` names them."""
        values = map(self.value, range(self.about().value_count))
        return [(KINDS[value.kind], DTYPES[value.dtype]) for value in values]

    def launch(self, values: Sequence[bytes | None], grid: tuple[int, int, int] | None = None, stream: int = 0) -> None:
        """Launch with the bytes of each value."""
        held = [None if value is None else ctypes.create_string_buffer(value, max(1, len(value))) for value in values]
        pointers = (ctypes.c_void_p * len(values))(*(0 if one is None else ctypes.addressof(one) for one in held))
        size = None if grid is None else (ctypes.c_uint32 * 3)(*grid)
        with self._api.checked("nj_plan_launch") as error:
            error.result = self._api.library.nj_plan_launch(
                self.handle, pointers, size, ctypes.c_void_p(stream), ctypes.byref(error)
            )


class CKernel:
    """An `nj_kernel`."""

    def __init__(self, api: CApi, handle: int) -> None:
        self._api, self.handle = api, ctypes.c_void_p(handle)

    def launch(
        self,
        *args: Any,
        grid: tuple[int, ...] | None = None,
        stream: int = 0,
        device: int = CURRENT_DEVICE,
        **named: Any,
    ) -> None:
        pen = _Pen()
        with self._api.checked("nj_kernel_launch") as error:
            error.result = self._api.library.nj_kernel_launch(
                self.handle, pen.call(args, named), ctypes.byref(_setup(grid, stream, device)), ctypes.byref(error)
            )

    def prepare(self, *args: Any, device: int = CURRENT_DEVICE, **named: Any) -> CPlan:
        pen, error = _Pen(), CErrorFacts()
        handle = self._api.library.nj_kernel_prepare(
            self.handle, pen.call(args, named), ctypes.c_int(device), ctypes.byref(error)
        )
        if not handle:
            raise CError(error, "nj_kernel_prepare")
        return CPlan(self._api, handle)

    def explain(self, *args: Any, device: int = CURRENT_DEVICE, **named: Any) -> list[tuple[int, int, str, str, str]]:
        """Return code, variant, name, expected and got of each reason."""
        pen, told = _Pen(), []

        def visit(_user: int, reason: Any) -> int:
            one = reason.contents
            texts = [(text or b"").decode() for text in (one.name, one.expected, one.got)]
            told.append((one.code, one.variant, *texts))
            return 0

        with self._api.checked("nj_kernel_explain") as error:
            error.result = self._api.library.nj_kernel_explain(
                self.handle, pen.call(args, named), ctypes.c_int(device), _VISITOR(visit), None,
                ctypes.byref(error),
            )  # fmt: skip
        return told

    def load(self, device: int) -> None:
        with self._api.checked("nj_kernel_load") as error:
            error.result = self._api.library.nj_kernel_load(self.handle, device, ctypes.byref(error))

    def about(self) -> KernelInfo:
        return self._api.fill("nj_kernel_about", self.handle, KernelInfo)

    def param(self, number: int) -> ParamInfo:
        return self._api.fill("nj_kernel_param", self.handle, ParamInfo, number)

    def params(self) -> list[tuple[str, bool, bool]]:
        """Return name, whether constexpr and whether it has a default, of each param."""
        listed = []
        for number in range(self.about().param_count):
            info = self.param(number)
            listed.append((info.name.decode(), bool(info.is_constexpr), bool(info.has_default)))
        return listed

    def config(self, number: int) -> dict[str, Any]:
        """Return each setting of a config."""
        info = self._api.fill("nj_kernel_config", self.handle, ConfigInfo, number)
        listed = (info.settings[place] for place in range(info.setting_count))
        return {one.name.decode(): _constant(one.value) for one in listed}


class CBundle:
    """An `nj_bundle`."""

    def __init__(self, api: CApi, handle: int, options: Options | None = None) -> None:
        self._api, self.handle = api, ctypes.c_void_p(handle)
        # the bundle calls its callbacks for as long as it lives
        self._options = options

    def about(self) -> BundleInfo:
        return self._api.fill("nj_bundle_about", self.handle, BundleInfo)

    def kernels(self) -> list[str]:
        named = self._api.library.nj_bundle_kernel_name
        return [named(self.handle, ctypes.c_size_t(i)).decode() for i in range(self.about().kernel_count)]

    def attachments(self) -> list[str]:
        named = self._api.library.nj_bundle_attachment_name
        return [named(self.handle, ctypes.c_size_t(i)).decode() for i in range(self.about().attachment_count)]

    def attachment(self, name: str) -> tuple[int, bytes]:
        """Return the address of an attachment, and its bytes."""
        error, size = CErrorFacts(), ctypes.c_size_t()
        at = self._api.library.nj_bundle_attachment(self.handle, name.encode(), ctypes.byref(size), ctypes.byref(error))
        if not at:
            raise CError(error, "nj_bundle_attachment")
        return at, ctypes.string_at(at, size.value)

    def fit(self, device: int) -> int:
        fit = ctypes.c_int()
        with self._api.checked("nj_bundle_fit") as error:
            error.result = self._api.library.nj_bundle_fit(self.handle, device, ctypes.byref(fit), ctypes.byref(error))
        return fit.value

    def kernel(self, name: str) -> CKernel:
        error = CErrorFacts()
        handle = self._api.library.nj_bundle_kernel(self.handle, name.encode(), ctypes.byref(error))
        if not handle:
            raise CError(error, "nj_bundle_kernel")
        return CKernel(self._api, handle)

    def close(self) -> None:
        self._api.library.nj_bundle_close(self.handle)


class _Checked(CErrorFacts):
    """An error that a function may fill, and what it returned."""

    result = 0


def _setup(grid: tuple[int, ...] | None, stream: int, device: int) -> LaunchSetup:
    size = None if grid is None else (ctypes.c_uint32 * 3)(*grid, *(1 for _ in range(len(grid), 3)))
    return LaunchSetup(ctypes.sizeof(LaunchSetup), stream or None, size, device)


class CApi:
    """The functions of nojit.h in a library."""

    def __init__(self, path: Path | None = None) -> None:
        self.library = ctypes.CDLL(os.fspath(path or library_path()))
        for name in (
            "nj_bundle_open",
            "nj_bundle_open_memory",
            "nj_bundle_kernel",
            "nj_bundle_attachment",
            "nj_kernel_prepare",
        ):
            getattr(self.library, name).restype = ctypes.c_void_p
        for name in ("nj_bundle_kernel_name", "nj_bundle_attachment_name"):
            getattr(self.library, name).restype = ctypes.c_char_p

    @contextlib.contextmanager
    def checked(self, function: str) -> Iterator[_Checked]:
        """Raise the error that a function fills whose `result` is not 0."""
        error = _Checked()
        yield error
        if error.result != 0:
            raise CError(error, function)

    def fill(self, function: str, handle: Any, kind: Any, *numbers: int, size: int | None = None) -> Any:
        """Return a struct that a function fills, which is told another size on request."""
        info = kind(size=ctypes.sizeof(kind) if size is None else size)
        with self.checked(function) as error:
            error.result = getattr(self.library, function)(
                handle, *map(ctypes.c_size_t, numbers), ctypes.byref(info), ctypes.byref(error)
            )
        return info

    def open(self, path: Path, options: Options | None = None) -> CBundle:
        error = CErrorFacts()
        given = None if options is None else ctypes.byref(options)
        handle = self.library.nj_bundle_open(os.fspath(path).encode(), given, ctypes.byref(error))
        if not handle:
            raise CError(error, "nj_bundle_open")
        return CBundle(self, handle, options)

    def open_memory(self, data: bytes, options: Options | None = None) -> CBundle:
        """Open bytes, which the caller keeps."""
        error = CErrorFacts()
        given = None if options is None else ctypes.byref(options)
        handle = self.library.nj_bundle_open_memory(data, ctypes.c_size_t(len(data)), given, ctypes.byref(error))
        if not handle:
            raise CError(error, "nj_bundle_open_memory")
        return CBundle(self, handle, options)
