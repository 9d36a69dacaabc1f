"""The licences that a recording names for the packages of its sources."""

from __future__ import annotations

from pathlib import Path

import pytest
from nojit.runtime.recording.distributions import Distributions

_WHOLE_TEXT = (
    "MIT License\n        \n        Copyright (c) 2024 Someone\n" + "        Permission is hereby granted\n" * 20
)


@pytest.mark.parametrize(
    ("fields", "license_"),
    [
        ("License-Expression: MIT\nLicense: old words\n", "MIT"),
        ("License: BSD\nClassifier: License :: OSI Approved :: MIT License\n", "BSD"),
        (f"License: {_WHOLE_TEXT}Classifier: License :: OSI Approved :: MIT License\n", "MIT License"),
        (f"License: {_WHOLE_TEXT}", "MIT License"),
        (f"License: Copyright (c) 2024 Someone\n{' ' * 8}{'words ' * 40}\n", ""),
        ("", ""),
    ],
    ids=["expression", "short", "text and classifier", "text", "text without a title", "none"],
)
def test_a_distribution_s_licence_is_what_its_metadata_names(
    fields: str, license_: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "nojit_licensed-1.0.dist-info"
    info.mkdir()
    head = "Metadata-Version: 2.1\nName: nojit-licensed\nVersion: 1.0\n"
    (info / "METADATA").write_text(head + fields, encoding="utf-8")
    (info / "top_level.txt").write_text("nojit_licensed\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = Distributions().new_of("nojit_licensed.kernels")
    assert found == {"name": "nojit-licensed", "version": "1.0", "license": license_}


def test_a_package_that_no_distribution_holds_has_its_name_alone() -> None:
    found = Distributions()
    assert found.new_of("acme_unpacked.layers.norm") == {"name": "acme_unpacked", "version": "", "license": ""}
    assert found.new_of("acme_unpacked.rope") is None
    assert found.new_of("__main__") is None
