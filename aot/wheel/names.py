"""How distributions, their files and their versions are spelled. Pure.

Sources: the packaging specifications "Names and normalization", "Binary distribution format" and "Version specifiers".
"""

from __future__ import annotations

import re

from nojit.runtime.errors import PackageError
from nojit.runtime.installed import normalized

__all__ = ["arch_label", "check_name", "check_version", "escaped"]

_NAME = re.compile(r"[A-Za-z0-9]|[A-Za-z0-9][A-Za-z0-9._-]*[A-Za-z0-9]")
_IDENTIFIER = re.compile(r"[a-z_][a-z0-9_]*")
# the canonical spellings only: an installer would look for any other under this one
_VERSION = re.compile(
    r"([1-9][0-9]*!)?(0|[1-9][0-9]*)(\.(0|[1-9][0-9]*))*((a|b|rc)(0|[1-9][0-9]*))?"
    r"(\.post(0|[1-9][0-9]*))?(\.dev(0|[1-9][0-9]*))?(\+[a-z0-9]+(\.[a-z0-9]+)*)?"
)


def escaped(name: str) -> str:
    """Spell a distribution's name as it stands in file names, and as its package: ``acme_kernels``."""
    return normalized(name).replace("-", "_")


def arch_label(arch: str) -> str:
    """Spell an arch as extras, variants and distributions are named after it: ``sm90`` for ``sm_90``."""
    return arch.replace("_", "")


def check_name(name: str) -> str:
    """Return `name` as indexes spell it.

    Raises:
        PackageError: it is none that a distribution, and a Python package after it, can have.
    """
    if not _NAME.fullmatch(name) or not _IDENTIFIER.fullmatch(escaped(name)):
        what = "expected a name of letters, digits, '-', '_' and '.', first a letter, at its end a letter or digit"
        raise PackageError(what, got=repr(name), where="name of the wheels")
    return normalized(name)


def check_version(version: str, where: str) -> str:
    """Return `version` if it is one that installers take, canonically spelled.

    Raises:
        PackageError: it is not.
    """
    if not _VERSION.fullmatch(version):
        what = "expected a canonical version such as 1.2.0, 1.2rc1 or 1.2.post1; --version gives the wheels another"
        raise PackageError(what, got=repr(version), where=where)
    return version
