from __future__ import annotations

import pytest
from nojit.aot.manifest.archs import check_arch, check_assembled, known_archs, target_of
from nojit.runtime.bundle.format import TargetInfo
from nojit.runtime.errors import ManifestError


@pytest.mark.parametrize("arch", known_archs())
def test_archs_that_are_known(arch):
    assert check_arch(arch, "here") == arch
    assert target_of(arch).arch == arch


@pytest.mark.parametrize(
    ("arch", "near"),
    [("sm_70", ""), ("90", ""), ("sm90", "sm_90"), ("", ""), ("sm_90a", "sm_90"), ("sm_1200", "sm_120")],
)
def test_what_is_no_arch(arch, near):
    with pytest.raises(ManifestError) as caught:
        check_arch(arch, "$.bundle.archs")
    message = str(caught.value)
    assert message.startswith("expected an arch such as sm_90, from sm_75 up")
    assert f"got {arch!r}" in message
    assert message.endswith(" - at $.bundle.archs")
    assert (f"did you mean '{near}'" in message) == bool(near)


def test_one_that_nobody_knows_is_for_the_toolchain_to_refuse():
    assert check_arch("sm_130", "here") == "sm_130"
    check_assembled("sm_130", ("sm_90", "sm_130"), "--arch")
    check_assembled("sm_130", (), "--arch")
    with pytest.raises(
        ManifestError,
        match=r"expected an arch that this toolchain assembles \(sm_90, sm_100; --ptxas takes another ptxas\), got 'sm_91'; did you mean 'sm_90'\? - at --arch",
    ):
        check_assembled("sm_91", ("sm_90", "sm_100"), "--arch")


@pytest.mark.parametrize(
    ("arch", "image_arch"), [("sm_80", "sm_80"), ("sm_89", "sm_89"), ("sm_90", "sm_90a"), ("sm_120", "sm_120a")]
)
def test_triton_assembles_for_the_exact_chip_from_sm_90_up(arch, image_arch):
    assert target_of(arch) == TargetInfo("cuda", arch, image_arch, 32)


def test_a_name_that_is_no_arch():
    with pytest.raises(
        ValueError, match="expected an arch such as sm_90, from sm_75 up, or gfx942, gfx950 or gfx1201, got 'ninety'"
    ):
        target_of("ninety")
    with pytest.raises(
        ValueError, match="expected an arch such as sm_90, from sm_75 up, or gfx942, gfx950 or gfx1201, got 90"
    ):
        target_of(90)
