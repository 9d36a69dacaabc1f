"""Checks and conversions of distribution names, file names, versions, requirements and licences. Pure.

Sources: the packaging specifications "Names and normalization", "Binary distribution format", "Version specifiers",
"Dependency specifiers" and "License expression".
"""

from __future__ import annotations

import re

from nojit.runtime.discovery.installed import normalized
from nojit.runtime.errors import PackageError
from packaging.licenses import canonicalize_license_expression
from packaging.requirements import Requirement
from packaging.version import Version

__all__ = [
    "TAG",
    "arch_label",
    "check_license",
    "check_name",
    "check_requirement",
    "check_version",
    "escaped",
    "file_name",
]

TAG = "py3-none-any"
"""Tag of the wheels: they hold no code of one Python or machine."""

_NAME = re.compile(r"[A-Za-z0-9]|[A-Za-z0-9][A-Za-z0-9._-]*[A-Za-z0-9]")
_IDENTIFIER = re.compile(r"[a-z_][a-z0-9_]*")


def escaped(name: str) -> str:
    """Return a distribution's name in the form of file names and Python packages: ``acme_kernels``."""
    return normalized(name).replace("-", "_")


def file_name(name: str, version: str, label: str) -> str:
    """Return the file name of a wheel; `label` is that of a variant wheel, empty for other wheels."""
    tail = f"-{label}" if label else ""
    return f"{escaped(name)}-{version}-{TAG}{tail}.whl"


def arch_label(arch: str) -> str:
    """Return an arch in the form that extras, wheel variants and distribution names use: ``sm90`` for ``sm_90``."""
    return arch.replace("_", "")


def check_name(name: str) -> str:
    """Return `name` in the normalized form of package indexes, after checking it.

    Raises:
        PackageError: a distribution or its Python package cannot have this name, or it is the runtime's.
    """
    if not _NAME.fullmatch(name) or not _IDENTIFIER.fullmatch(escaped(name)):
        what = "expected a name of letters, digits, '-', '_' and '.', with a letter first and a letter or digit last"
        raise PackageError(what, got=repr(name), where="name of the wheels")
    if normalized(name) == "nojit":
        what = "expected a name other than the runtime's, which this wheel would replace"
        raise PackageError(what, got=repr(name), where="name of the wheels")
    return normalized(name)


def check_version(version: str, where: str) -> str:
    """Return `version` unchanged if installers accept it and it has the canonical form.

    Raises:
        PackageError: the version is invalid or not canonical.
    """
    try:
        canonical = str(Version(version))
    except ValueError:
        canonical = None
    # installers look up every other spelling under the canonical one
    if version != canonical:
        what = "expected a canonical version such as 1.2.0, 1.2rc1 or 1.2.post1; set one with --version"
        raise PackageError(what, got=repr(version), where=where)
    return version


def check_requirement(text: str) -> str:
    """Return `text` unchanged if installers can parse it as a requirement.

    Raises:
        PackageError: `text` is not a requirement.
    """
    try:
        Requirement(text)
    except ValueError:
        what = "expected a requirement such as torch, torch>=2.4 or torch>=2.4; python_version >= '3.11'"
        raise PackageError(what, got=repr(text), where="requirements of the wheels") from None
    return text


def check_license(text: str) -> str:
    """Return an SPDX expression in its canonical spelling; each licence must be on SPDX's list, or start with ``LicenseRef-``.

    Raises:
        PackageError: `text` is no SPDX expression, or names an unknown licence.
    """
    try:
        return canonicalize_license_expression(text)
    except (ValueError, LookupError):
        # packaging before 26 looks some up that it does not know
        what = "expected an SPDX expression of known licences, such as Apache-2.0, MIT OR Apache-2.0 or LicenseRef-Acme"
        raise PackageError(what, got=repr(text), where="licence of the wheels") from None
