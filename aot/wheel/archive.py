"""Packer of wheels: zip archives with a record of their files. The same files give the same bytes on every machine.

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

from nojit.aot.wheel.names import TAG, escaped, file_name

__all__ = ["Wheel", "pack_wheel"]

# the earliest date of a zip archive: the bytes must not depend on the time of the build
_TIME = (1980, 1, 1, 0, 0, 0)
_UNIX = 3


@dataclass(frozen=True, slots=True)
class Wheel:
    """Name and content of one wheel."""

    name: str
    """The distribution's name, as package indexes write it."""
    version: str
    files: Mapping[str, bytes]
    """Contents of the files by path; the package's files come first."""
    dist_info: Mapping[str, bytes]
    """Contents of the files in the ``.dist-info`` folder by path, without WHEEL and RECORD, which `pack_wheel` adds."""
    label: str = ""
    """The label of a variant wheel; empty for other wheels."""

    @property
    def file_name(self) -> str:
        """The wheel's file name."""
        return file_name(self.name, self.version, self.label)


def pack_wheel(wheel: Wheel, generator: str) -> bytes:
    """Return the bytes of a wheel.

    Args:
        wheel: the content.
        generator: the tool and its version, for the file ``WHEEL``.
    """
    folder = f"{escaped(wheel.name)}-{wheel.version}.dist-info"
    files = dict(wheel.files)
    files |= {f"{folder}/{path}": content for path, content in sorted(wheel.dist_info.items())}
    files[f"{folder}/WHEEL"] = _wheel_file(generator)
    record = f"{folder}/RECORD"
    files[record] = _record(files, record)
    packed = io.BytesIO()
    # stored, not deflated: bundles are compressed already, and zlib versions differ in their output
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
        for path, content in files.items():
            info = zipfile.ZipInfo(path, _TIME)
            info.create_system = _UNIX
            info.external_attr = (stat.S_IFREG | 0o644) << 16
            archive.writestr(info, content)
    return packed.getvalue()


def _wheel_file(generator: str) -> bytes:
    return f"Wheel-Version: 1.0\nGenerator: {generator}\nRoot-Is-Purelib: true\nTag: {TAG}\n".encode()


def _record(files: Mapping[str, bytes], record: str) -> bytes:
    lines = io.StringIO()
    rows = [(path, f"sha256={_digest(content)}", len(content)) for path, content in files.items()]
    csv.writer(lines, lineterminator="\n").writerows([*rows, (record, "", "")])
    return lines.getvalue().encode()


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
