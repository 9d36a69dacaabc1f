"""A wheel's bytes: a zip archive with a record of its files. The same files give the same bytes, whoever packs them.

Source: the packaging specification "Binary distribution format", version 1.0 of wheels.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import stat
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass

from nojit.aot.wheel.names import escaped

__all__ = ["Wheel", "pack_wheel"]

_TAG = "py3-none-any"
# the first that a zip archive can say: when a wheel was made is no part of it
_TIME = (1980, 1, 1, 0, 0, 0)
_UNIX = 3


@dataclass(frozen=True, slots=True)
class Wheel:
    """One wheel's name and content."""

    name: str
    """Of the distribution, as indexes spell it."""
    version: str
    files: Mapping[str, bytes]
    """By path; those of the package first."""
    dist_info: Mapping[str, bytes]
    """By path in the ``.dist-info`` folder; WHEEL and RECORD are added."""
    label: str = ""
    """Of a variant wheel."""

    @property
    def file_name(self) -> str:
        """Name of the file."""
        tail = f"-{self.label}" if self.label else ""
        return f"{escaped(self.name)}-{self.version}-{_TAG}{tail}.whl"


def pack_wheel(wheel: Wheel, generator: str) -> bytes:
    """Lay out a wheel.

    Args:
        wheel: its content.
        generator: who made it, for the file ``WHEEL``.
    """
    folder = f"{escaped(wheel.name)}-{wheel.version}.dist-info"
    files = dict(wheel.files)
    files |= {f"{folder}/{path}": content for path, content in sorted(wheel.dist_info.items())}
    files[f"{folder}/WHEEL"] = _wheel_file(generator)
    record = f"{folder}/RECORD"
    files[record] = _record(files, record)
    packed = io.BytesIO()
    # stored, not deflated: bundles are compressed already, and another zlib would give other bytes
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
        for path, content in files.items():
            info = zipfile.ZipInfo(path, _TIME)
            info.create_system = _UNIX
            info.external_attr = (stat.S_IFREG | 0o644) << 16
            archive.writestr(info, content)
    return packed.getvalue()


def _wheel_file(generator: str) -> bytes:
    return f"Wheel-Version: 1.0\nGenerator: {generator}\nRoot-Is-Purelib: true\nTag: {_TAG}\n".encode()


def _record(files: Mapping[str, bytes], record: str) -> bytes:
    lines = io.StringIO()
    rows = [(path, f"sha256={_digest(content)}", len(content)) for path, content in files.items()]
    csv.writer(lines, lineterminator="\n").writerows([*rows, (record, "", "")])
    return lines.getvalue().encode()


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
