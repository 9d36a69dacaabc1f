"""Upkeep of a place that does not exist."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from nojit.aot.cache.upkeep import open_places
from nojit.runtime.errors import PackageError


def test_a_missing_bucket_is_named_with_what_to_do(new_url: Callable[[str], str], tmp_path: Path) -> None:
    new_url("s3")
    (keeper,) = open_places(tmp_path, "s3://no-such-bucket/p")
    with pytest.raises(PackageError) as caught:
        keeper.facts()
    message = str(caught.value)
    assert message.startswith("expected a cache that can be listed, got The specified bucket does not exist")
    assert " - at s3://no-such-bucket/p; check that the place exists, and the permissions: for a bucket, " in message
