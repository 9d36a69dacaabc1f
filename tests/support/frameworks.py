"""A framework with DLPack's C exchange API whose functions are a test's, so that they can lie."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import POINTER, PYFUNCTYPE, addressof, c_int, c_int64, c_void_p, pointer, py_object
from typing import Any

from tests.fakecuda.exchange import Api, Managed, Tensor

__all__ = ["HOST", "MANAGED", "Framework", "describe"]

CUDA, HOST, MANAGED = 2, 1, 13
_fields: dict[str, Any] = dict(Api._fields_)
_Allocate, _Export, _Stream = _fields["allocate"], _fields["export_tensor"], _fields["current_stream"]
_ExportManaged = PYFUNCTYPE(c_int, py_object, POINTER(POINTER(Managed)))
_Delete: Any = dict(Managed._fields_)["deleter"]


def describe(
    view: Tensor,
    address: int,
    shape: tuple[int, ...] | None = (4096,),
    *,
    device: int = 0,
    kind: int = CUDA,
    **more: Any,
) -> None:
    """Fill a view in as a tensor of bytes; `more` are other fields. None is a shape that is not there."""
    view.data, view.device_type, view.device_id = address, kind, device
    view.code, view.bits, view.lanes = 1, 8, 1
    view.ndim = 2 if shape is None else len(shape)
    view.shape = None if shape is None else ctypes.cast((c_int64 * len(shape))(*shape), POINTER(c_int64))
    for name, value in more.items():
        setattr(view, name, value)
    # as long as the process: whoever holds the view may look at it
    _shapes.append(view.shape)


_shapes: list[Any] = []


class Framework:
    """One framework, and the type of its tensors.

    Args:
        export: fills a view of a tensor in, and returns 0.
        export_managed: the same of a managed tensor: what there is instead of `export` if that is None.
        allocate: fills a managed tensor in, and returns 0; None for a framework that has no allocator.
        stream: returns 0; None for a framework that has no streams.
        version: the major version of its table.

    Attributes:
        deleted: how many of the managed tensors were given back.
    """

    def __init__(
        self,
        export: Callable[[Any], int] | None = lambda view: describe(view, 0x1000) or 0,
        export_managed: Callable[[Any], int] | None = lambda _: -1,
        allocate: Callable[[Any], int] | None = lambda managed: describe(managed.tensor, 0x10000) or 0,
        stream: Callable[[], int] | None = lambda: 0,
        *,
        version: int = 1,
    ) -> None:
        self.deleted = 0
        self._kept: list[Any] = []
        self.api = Api(version, 0, None)
        if export is not None:
            self.api.export_tensor = self._keep(_Export(lambda _object, view: export(view.contents)))
        if export_managed is not None:
            managed = self._keep(_ExportManaged(lambda _object, out: self._give(export_managed, out)))
            self.api.export_managed = ctypes.cast(managed, c_void_p)
        if allocate is not None:
            self.api.allocate = self._keep(_Allocate(lambda _like, out, _context, _error: self._give(allocate, out)))
        if stream is not None:
            self.api.current_stream = self._keep(_Stream(lambda _type, _device, _out: stream()))
        capsule = ctypes.pythonapi.PyCapsule_New
        capsule.restype, capsule.argtypes = py_object, (c_void_p, ctypes.c_char_p, c_void_p)
        table = capsule(addressof(self.api), b"dlpack_exchange_api", None)
        self.Tensor = type("Tensor", (), {"__dlpack_c_exchange_api__": table})
        _frameworks.append(self)

    def _keep(self, thing: Any) -> Any:
        self._kept.append(thing)
        return thing

    def _give(self, fill: Callable[[Any], int], out: Any) -> int:
        """Hand a managed tensor out that `fill` fills in, unless it says 1: then nothing is handed out, and nothing said."""
        managed = self._keep(Managed(1, 0))
        managed.deleter = self._keep(_Delete(self._delete))
        code = fill(managed)
        if code == 0:
            out[0] = pointer(managed)
        return 0 if code == 1 else code

    def _delete(self, _managed: Any) -> None:
        self.deleted += 1


# the runtime keeps the table of each type that it met
_frameworks: list[Framework] = []
