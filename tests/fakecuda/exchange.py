"""DLPack's C exchange API for ctypes: our own reading of it, which shares nothing with the runtime's."""

from __future__ import annotations

import ctypes
from ctypes import CFUNCTYPE, POINTER, c_char_p, c_int, c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_void_p
from typing import Any

__all__ = ["Api", "Managed", "SetError", "Tensor", "api_of"]


class Tensor(ctypes.Structure):
    _fields_ = (
        ("data", c_void_p),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("ndim", c_int32),
        ("code", c_uint8),
        ("bits", c_uint8),
        ("lanes", c_uint16),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class Managed(ctypes.Structure):
    pass


Managed._fields_ = (
    ("major", c_uint32),
    ("minor", c_uint32),
    ("context", c_void_p),
    ("deleter", CFUNCTYPE(None, POINTER(Managed))),
    ("flags", ctypes.c_uint64),
    ("tensor", Tensor),
)
SetError = CFUNCTYPE(None, c_void_p, c_char_p, c_char_p)


class Api(ctypes.Structure):
    _fields_ = (
        ("major", c_uint32),
        ("minor", c_uint32),
        ("previous", c_void_p),
        ("allocate", CFUNCTYPE(c_int, POINTER(Tensor), POINTER(POINTER(Managed)), c_void_p, SetError)),
        ("export_managed", c_void_p),
        ("import_managed", c_void_p),
        ("export_tensor", ctypes.PYFUNCTYPE(c_int, ctypes.py_object, POINTER(Tensor))),
        ("current_stream", ctypes.PYFUNCTYPE(c_int, c_int32, c_int32, POINTER(c_void_p))),
    )


def api_of(kind: type) -> Api:
    """Find the table of a tensor type."""
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = c_void_p, (ctypes.py_object, c_char_p)
    capsule: Any = kind.__dict__["__dlpack_c_exchange_api__"]
    return Api.from_address(pointer(capsule, b"dlpack_exchange_api"))
