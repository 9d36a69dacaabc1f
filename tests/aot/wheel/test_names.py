"""How requirements and licences of wheels are spelled."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from nojit.aot.wheel.names import check_license, check_requirement
from nojit.runtime.errors import PackageError

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
LICENSES = {
    "MIT": "MIT",
    "mit or apache-2.0": "MIT OR Apache-2.0",
    "GPL-2.0-or-later WITH Classpath-exception-2.0": "GPL-2.0-or-later WITH Classpath-exception-2.0",
    "LicenseRef-Acme": "LicenseRef-Acme",
    "(MIT AND (Apache-2.0 OR BSD-3-Clause)) OR GPL-2.0+": "(MIT AND (Apache-2.0 OR BSD-3-Clause)) OR GPL-2.0+",
}
NO_LICENSES = [
    "foo",
    "Apache-2",
    "LicenseRef-Acme+",
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
def test_requirements_are_kept_as_they_are_spelled(text: str) -> None:
    assert check_requirement(text) == text


@pytest.mark.parametrize(("text", "canonical"), LICENSES.items())
def test_licences_get_their_canonical_spelling(text: str, canonical: str) -> None:
    assert check_license(text) == canonical


@pytest.mark.parametrize(
    ("check", "text"),
    [*((check_requirement, text) for text in NO_REQUIREMENTS), *((check_license, text) for text in NO_LICENSES)],
)
def test_what_is_none_is_refused(check: Callable[[str], str], text: str) -> None:
    with pytest.raises(PackageError, match="expected a"):
        check(text)
