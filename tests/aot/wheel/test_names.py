"""How requirements and licences are spelled, held against the reference reader of both."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from nojit.aot.wheel.names import check_license, check_requirement
from nojit.runtime.errors import PackageError
from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression
from packaging.requirements import InvalidRequirement, Requirement

REQUIREMENTS = [
    "torch",
    "torch>=2.4",
    "torch >= 2.4, < 3",
    "torch (>=2.4,!=2.5.*)",
    "torch[cuda,dev]==2.4.0+cu124",
    "nojit~=0.1.0",
    "acme-sm90==1.0; extra == 'sm90'",
    "torch; python_version >= '3.11' and (sys_platform == 'linux' or extra == \"x\")",
    "acme @ https://example.org/acme-1.0-py3-none-any.whl",
    "acme; platform_machine in 'x86_64 aarch64'",
]
NO_REQUIREMENTS = [
    ">>>", "nojit ><", "", "torch>=", "torch 2.4", "torch>=2.4 <3", "torch; linux", "torch[", "-torch", "a b", "torch;",
    "torch; (extra == 'x'", "torch>=x",
]  # fmt: skip
LICENSES = [
    "MIT",
    "Apache-2.0",
    "MIT OR Apache-2.0",
    "GPL-2.0-or-later WITH Classpath-exception-2.0",
    "LicenseRef-Acme",
]
LICENSES += ["(MIT AND (Apache-2.0 OR BSD-3-Clause)) OR GPL-2.0+"]
NO_LICENSES = [
    "Foo Bar",
    "MIT OR",
    "OR",
    "(MIT",
    "MIT)",
    "MIT AND AND MIT",
    "()",
    "MIT/Apache-2.0",
    "MIT, BSD-3-Clause",
]


@pytest.mark.parametrize("text", REQUIREMENTS)
def test_requirements(text: str) -> None:
    assert Requirement(text)
    assert check_requirement(text) == text


@pytest.mark.parametrize("text", LICENSES)
def test_licences(text: str) -> None:
    assert canonicalize_license_expression(text)
    assert check_license(text) == text


@pytest.mark.parametrize(
    ("check", "reference", "error", "text"),
    [
        *((check_requirement, Requirement, InvalidRequirement, text) for text in NO_REQUIREMENTS),
        *((check_license, canonicalize_license_expression, InvalidLicenseExpression, text) for text in NO_LICENSES),
    ],
)
def test_what_is_none_is_refused(
    check: Callable[[str], str], reference: Callable[[str], object], error: type[Exception], text: str
) -> None:
    with pytest.raises(error):
        reference(text)
    with pytest.raises(PackageError, match="expected a"):
        check(text)
