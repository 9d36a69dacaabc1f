from __future__ import annotations

import pytest
from nojit.aot.target import ARCHS, check_arch, target_of
from nojit.runtime.errors import ManifestError
from nojit.runtime.format import TargetInfo


@pytest.mark.parametrize("arch", ARCHS)
def test_archs_that_can_be_built_for(arch):
    assert check_arch(arch, "here") == arch
    assert target_of(arch).arch == arch


@pytest.mark.parametrize(
    ("arch", "near"), [("sm_91", "sm_90"), ("90", ""), ("sm90", "sm_90"), ("", ""), ("sm_90a", "sm_90")]
)
def test_archs_that_cannot(arch, near):
    with pytest.raises(ManifestError) as caught:
        check_arch(arch, "$.bundle.archs")
    message = str(caught.value)
    assert message.startswith("expected an arch of sm_75, sm_80, ")
    assert f"got {arch!r}" in message
    assert message.endswith(" - at $.bundle.archs")
    assert (f"did you mean '{near}'" in message) == bool(near)


@pytest.mark.parametrize(
    ("arch", "image_arch"), [("sm_80", "sm_80"), ("sm_89", "sm_89"), ("sm_90", "sm_90a"), ("sm_120", "sm_120a")]
)
def test_triton_assembles_for_the_exact_chip_from_sm_90_up(arch, image_arch):
    assert target_of(arch) == TargetInfo("cuda", arch, image_arch, 32)


def test_a_name_that_is_no_arch():
    with pytest.raises(ValueError, match="expected an arch such as sm_90, got 'ninety'"):
        target_of("ninety")
    with pytest.raises(ValueError, match="expected an arch such as sm_90, got 90"):
        target_of(90)
