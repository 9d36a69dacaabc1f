"""How distributions, their files, versions, requirements and licences are spelled. Pure.

Sources: the packaging specifications "Names and normalization", "Binary distribution format", "Version specifiers",
"Dependency specifiers" and "License expression".
"""

from __future__ import annotations

import re

from nojit.runtime.errors import PackageError
from nojit.runtime.installed import normalized

__all__ = ["arch_label", "check_license", "check_name", "check_requirement", "check_version", "escaped"]

_NAME = re.compile(r"[A-Za-z0-9]|[A-Za-z0-9][A-Za-z0-9._-]*[A-Za-z0-9]")
_IDENTIFIER = re.compile(r"[a-z_][a-z0-9_]*")
# the canonical spellings only: an installer would look for any other under this one
_VERSION = re.compile(
    r"([1-9][0-9]*!)?(0|[1-9][0-9]*)(\.(0|[1-9][0-9]*))*((a|b|rc)(0|[1-9][0-9]*))?"
    r"(\.post(0|[1-9][0-9]*))?(\.dev(0|[1-9][0-9]*))?(\+[a-z0-9]+(\.[a-z0-9]+)*)?"
)

_BOUND = r"(?:===|~=|==|!=|<=|>=|<|>)\s*v?[0-9][A-Za-z0-9.!+*_-]*"
_BOUNDS = rf"{_BOUND}(?:\s*,\s*{_BOUND})*"
_OPERAND = r"(?:[a-z_.]+|'[^']*'|\"[^\"]*\")"
_TEST = rf"\(*\s*{_OPERAND}\s*(?:===|~=|==|!=|<=|>=|<|>|\bin\b|\bnot\s+in\b)\s*{_OPERAND}\s*\)*"
_REQUIREMENT = re.compile(
    rf"(?:{_NAME.pattern})(?:\s*\[[A-Za-z0-9._,\s-]*\])?"
    rf"\s*(?:{_BOUNDS}|\({_BOUNDS}\)|@\s*[a-z+]+:\S+)?"
    rf"(?:\s*;\s*{_TEST}(?:\s*\b(?:and|or)\b\s*{_TEST})*)?"
)
_LICENSE = r"(?!(?:AND|OR|WITH)\b)[A-Za-z0-9][A-Za-z0-9.-]*\+?"
_LICENSES = rf"{_LICENSE}(?: WITH {_LICENSE})?(?: (?:AND|OR) {_LICENSE}(?: WITH {_LICENSE})?)*"


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
    if normalized(name) == "nojit":
        what = "expected another name than the runtime's, which such a wheel would replace"
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


def check_requirement(text: str) -> str:
    """Return `text` if it is a requirement as installers read it.

    Raises:
        PackageError: it is not.
    """
    if not _REQUIREMENT.fullmatch(text) or text.count("(") != text.count(")"):
        what = "expected a requirement such as torch, torch>=2.4 or torch>=2.4; python_version >= '3.11'"
        raise PackageError(what, got=repr(text), where="requirements of the wheels")
    return text


def check_license(text: str) -> str:
    """Return `text` if it is spelled as an SPDX expression; whether there is such a licence is not looked up.

    Raises:
        PackageError: it is not.
    """
    flat = text
    while (inner := re.sub(rf"\(({_LICENSES})\)", "MIT", flat)) != flat:
        flat = inner
    if not re.fullmatch(_LICENSES, flat):
        what = "expected an SPDX expression such as Apache-2.0, MIT OR Apache-2.0 or LicenseRef-Acme"
        raise PackageError(what, got=repr(text), where="licence of the wheels")
    return text
