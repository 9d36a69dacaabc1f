"""Shared places by URL: folders, and object stores through fsspec. Imports fsspec only for the latter."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from nojit.aot.cache.store import Folder, Store, Stored
from nojit.runtime.errors import PackageError

__all__ = ["check_url", "open_store"]

_FORMS: Final = "s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, file:///FOLDER or memory://NAME"
_NEEDED: Final = {"s3": "s3fs", "gs": "gcsfs", "memory": "fsspec"}
# a user, password, token or query; `::` names a second place to fsspec
_UNFIT: Final = re.compile(r"[@?#\x00-\x1f\x7f-\x9f]|::|\A[^/]*//[^/]*:")
_TIMES: Final = ("LastModified", "mtime", "updated", "created")


def check_url(url: str) -> str:
    """Return the URL of a shared cache without a final slash.

    Raises:
        ValueError: the URL has another form, or may hold a password. The message shows the scheme only.
    """
    scheme = re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", url)
    given = f"one that starts with {scheme[0]}" if scheme else "one without a scheme"
    if _UNFIT.search(url):
        raise ValueError(
            "expected a URL without user, password, query and fragment: no @, ?, #, ::, control character, and "
            f"no : before the path, got {given}; for credentials, use fsspec's settings, such as AWS_PROFILE"
        )
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = urlsplit("")
    local = parts.scheme == "file"
    known = local or parts.scheme in _NEEDED
    # a folder has no host; in its place, the others have a bucket or a name
    if not known or (parts.netloc != "") == local or (local and not parts.path.strip("/")):
        raise ValueError(f"expected {_FORMS}, got {given}")
    return url.rstrip("/")


def open_store(url: str, timeout_s: float) -> Store:
    """Open the place that a URL names. Nothing is read or written yet.

    Args:
        url: the URL, from `check_url`.
        timeout_s: longest time that one request may take, as far as the library supports it.

    Raises:
        PackageError: the library for the scheme is not installed, or cannot use the URL.
    """
    parts = urlsplit(url)
    if parts.scheme == "file":
        place = Folder(Path(unquote(parts.path)))
        place.url = url
        return place
    if find_spec(_NEEDED[parts.scheme]) is None:
        what = f"expected {_NEEDED[parts.scheme]} to be installed, for {parts.scheme}://"
        raise PackageError(what, got="none", where=url).advise("pip install 'nojit[farm]'")
    return _Objects(url, _options(parts.scheme, timeout_s))


def _options(scheme: str, timeout_s: float) -> dict[str, Any]:
    """Return fsspec's options for a scheme: time limits, and no stored listings, which would hide what others write."""
    options: dict[str, Any] = {"skip_instance_cache": True, "use_listings_cache": False}
    if scheme == "s3":
        limits = {"connect_timeout": timeout_s / 4, "read_timeout": timeout_s, "retries": {"max_attempts": 2}}
        options["config_kwargs"] = {**limits, "max_pool_connections": 64}
    elif scheme == "gs":
        options["timeout"] = timeout_s
    return options if scheme != "memory" else {}


class _Objects:
    """A place that fsspec reaches. It is opened by the first operation, as up-to-date builds need none."""

    def __init__(self, url: str, options: dict[str, Any]) -> None:
        self.url = url
        self._options = options
        self._opened: tuple[Any, str] | None = None
        self._lock = Lock()

    def open(self) -> None:
        """Import fsspec and the library of the scheme; see `Store`."""
        self._place()

    @property
    def _files(self) -> Any:
        return self._place()[0]

    @property
    def _root(self) -> str:
        return self._place()[1]

    def _place(self) -> tuple[Any, str]:
        """Return fsspec's file system and the path in it."""
        with self._lock:
            if self._opened is None:
                from fsspec.core import url_to_fs  # slow to import, and of an extra

                files, root = url_to_fs(self.url, **self._options)
                if hasattr(files, "retries"):
                    # s3fs would try five times
                    files.retries = 2
                self._opened = files, str(root).rstrip("/")
            return self._opened

    def read(self, name: str, most: int) -> bytes:
        """Return the content of an object, at most `most` bytes and one more; see `Store`."""
        try:
            data: bytes = self._files.cat_file(f"{self._root}/{name}", start=0, end=most + 1)
        except FileNotFoundError as error:
            if _code(error) == "NoSuchBucket":
                raise OSError(str(error)) from error
            raise
        except OSError as error:
            # a range of an empty object
            if _code(error) == "InvalidRange":
                return b""
            raise
        return data

    def write(self, name: str, data: bytes) -> None:
        """Write an object in one request; see `Store`."""
        self._files.pipe_file(f"{self._root}/{name}", data)

    def create(self, name: str, data: bytes) -> bool:
        """Write an object unless it exists, by a conditional request; see `Store`."""
        try:
            self._files.pipe_file(f"{self._root}/{name}", data, mode="create")
        except FileExistsError:
            return False
        except OSError as error:
            # two writers at the same time
            if _code(error) in {"ConditionalRequestConflict", "PreconditionFailed"}:
                return False
            raise
        return True

    def delete(self, name: str) -> None:
        """Delete an object if it exists; see `Store`."""
        try:
            self._files.rm_file(f"{self._root}/{name}")
        except FileNotFoundError:
            return

    def list(self, under: str = "") -> Iterator[Stored]:
        """Yield the objects; see `Store`."""
        # other builds change it, and fsspec's in-memory files have no option for that
        self._files.invalidate_cache()
        start = f"{self._root}/{under}".rstrip("/")
        for path, facts in self._files.find(start, detail=True).items():
            name = path.removeprefix(f"{self._root}/")
            if name.count("/") <= 1:
                yield Stored(name, facts["size"], _seconds(facts))


def _code(error: OSError) -> str:
    """Return the error code of S3's answer; empty if there is none."""
    response = getattr(error.__cause__, "response", None)
    found = response.get("Error", {}).get("Code", "") if isinstance(response, dict) else ""
    return str(found)


def _seconds(facts: dict[str, Any]) -> float:
    for name in _TIMES:
        value = facts.get(name)
        if isinstance(value, str):
            value = datetime.fromisoformat(value)
        if isinstance(value, datetime):
            return value.timestamp()
        if isinstance(value, int | float):
            return float(value)
    return 0.0
