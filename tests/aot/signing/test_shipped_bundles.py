"""Bundles that are verified to be shipped: nothing else is shipped in their place."""

from __future__ import annotations

from pathlib import Path

import pytest
from nojit.aot.signing.shipped_bundles import read_bundle
from nojit.runtime.errors import BundleError, PackageError

from tests.support.bundles import kernel, make_bundle

ADD = kernel("add", {"n": "i32"})


def test_a_file_that_changes_after_it_was_verified_is_not_shipped(tmp_path: Path) -> None:
    path = make_bundle(tmp_path / "a.nojit", ADD, name="acme")
    bundle = read_bundle(path)
    assert bundle.read_files() == {"acme-1.0-sm_90.nojit": path.read_bytes()}
    make_bundle(path, ADD, name="acme", version="1.1")
    with pytest.raises(BundleError, match="expected a file that does not change while it is read"):
        bundle.read_files()


def test_a_version_that_makes_no_file_name_is_refused(tmp_path: Path) -> None:
    path = make_bundle(tmp_path / "a.nojit", ADD, version="1/0")
    with pytest.raises(PackageError, match="expected a bundle's version as nojit build allows"):
        read_bundle(path)
