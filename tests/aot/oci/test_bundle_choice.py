"""Which bundles of a release an arch or the devices of a machine get."""

from __future__ import annotations

import pytest
from nojit.aot.oci.bundle_choice import for_arch, for_devices, too_new
from nojit.aot.oci.documents import Descriptor
from nojit.aot.oci.release import Offer
from nojit.runtime.errors import RegistryError


def offer(arch: str, image_arch: str = "", name: str = "acme", min_driver: int = 12000) -> Offer:
    digest = Descriptor("x", f"sha256:{'0' * 64}", 1)
    return Offer(digest, name, "1.0", arch, image_arch or arch, min_driver, "", "")


OFFERS = [
    offer("sm_80"),
    offer("sm_86"),
    offer("sm_90", "sm_90a", min_driver=13000),
    offer("sm_100", "sm_100a"),
    offer("sm_100f", "sm_100f"),
    offer("gfx942", min_driver=6040),
    offer("sm_80", name="more"),
    # of an arch that this nojit does not know
    offer("xe_3"),
]


@pytest.mark.parametrize(
    ("arch", "expected"),
    [
        ("sm_80", ["sm_80", "sm_80"]),
        ("sm_86", ["sm_86", "sm_80"]),
        ("sm_89", ["sm_86", "sm_80"]),
        ("sm_90", ["sm_90"]),
        ("sm_100", ["sm_100"]),
        ("sm_103", ["sm_100f"]),
        ("sm_100f", ["sm_100f"]),
        ("gfx942", ["gfx942"]),
    ],
)
def test_an_arch_gets_the_best_bundle_of_each_name(arch: str, expected: list[str]) -> None:
    assert [each.arch for each in for_arch(OFFERS, arch, "")] == expected


@pytest.mark.parametrize("arch", ["sm_75", "sm_87", "sm_101", "sm_120f", "gfx950"])
def test_an_arch_without_a_bundle_is_told_what_there_is(arch: str) -> None:
    with pytest.raises(
        RegistryError, match=f"expected a bundle that runs on {arch}, got bundles for .*sm_90"
    ) as caught:
        for_arch(OFFERS, arch, "")
    assert caught.value.reason == "arch"


def test_devices_of_both_vendors_get_theirs() -> None:
    chosen, unserved = for_devices(OFFERS, [942, 90, 75], "")
    assert [each.arch for each in chosen] == ["sm_90", "gfx942"]
    assert unserved == ["sm_75"]
    assert too_new(chosen, 6030) == [
        "acme-1.0-sm_90.nojit needs a driver for CUDA 13.0 (580.65.06 or later); this one is for 6.3",
        "acme-1.0-gfx942.nojit needs a driver for ROCm 6.4; this one is for 6.3",
    ]
