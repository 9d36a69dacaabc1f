"""What the stage of a real GPU checks before it touches one."""

from __future__ import annotations

from pathlib import Path

import pytest
from nojit.aot.tune.torch_stage import check_fit
from nojit.runtime import load
from nojit.runtime.errors import NojitError
from nojit.runtime.format import TargetInfo

from tests.support.bundles import kernel, make_bundle


def test_a_bundle_for_another_device_is_refused(tmp_path: Path) -> None:
    on = TargetInfo("cuda", "sm_80", "sm_80", 32)
    bundle = load(make_bundle(tmp_path / "old.nojit", kernel("copy", {"x_ptr": "*fp32"}, on=on), on=on))
    check_fit(bundle, 80, "old.nojit")
    check_fit(bundle, 89, "old.nojit")
    with pytest.raises(NojitError, match=r"expected a bundle for sm_90, got sm_80 - at old.nojit"):
        check_fit(bundle, 90, "old.nojit")
