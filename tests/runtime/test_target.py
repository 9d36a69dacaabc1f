"""Which device runs which image, pair by pair, against a table that is written down here and computed nowhere."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
from nojit.runtime import loader
from nojit.runtime.errors import NoMatchingVariantError
from nojit.runtime.target import ARCHS, image_arch_of, parse_image_arch

from tests.fakecuda.driver import FakeCuda
from tests.spec.target_reference import IMAGES
from tests.support.bundles import kernel, make_bundle, target

DEVICES = (75, 80, 86, 87, 88, 89, 90, 100, 101, 103, 107, 110, 120, 121)
# the devices that run each image, but for those that are for exactly one chip
RUNS = {
    "sm_75": {75},
    "sm_80": {80, 86, 89},
    "sm_86": {86, 89},
    "sm_87": {87},
    "sm_88": {88},
    "sm_89": {89},
    "sm_90": {90},
    "sm_100": {100, 103, 107},
    "sm_101": {101},
    "sm_103": {103, 107},
    "sm_107": {107},
    "sm_110": {110},
    "sm_120": {120, 121},
    "sm_121": {121},
    "sm_100f": {100, 103, 107},
    "sm_101f": {101},
    "sm_103f": {103, 107},
    "sm_107f": {107},
    "sm_110f": {110},
    "sm_120f": {120, 121},
    "sm_121f": {121},
} | {f"sm_{device}a": {device} for device in DEVICES}


@pytest.mark.parametrize("image", RUNS)
def test_an_image_runs_where_the_table_says(image: str) -> None:
    assert {device for device in DEVICES if parse_image_arch(image).runs_on(device)} == RUNS[image]


def test_the_table_has_every_arch_that_is_known() -> None:
    assert {int(arch.removeprefix("sm_")) for arch in ARCHS} == {*DEVICES}
    assert {str(image_arch_of(arch)) for arch in ARCHS} <= RUNS.keys()
    assert {*IMAGES} <= RUNS.keys()


@pytest.mark.parametrize(("image", "device"), [*product(("sm_80", "sm_86", "sm_87", "sm_110a"), (80, 86, 87, 89, 110))])
def test_the_fake_driver_has_the_same_table(tmp_path: Path, fakecuda: FakeCuda, image: str, device: int) -> None:
    """Whatever the runtime says, the driver has its own word: the tests' one is to say what a real one would."""
    fakecuda.set_devices(device)
    path = make_bundle(tmp_path / "a.nojit", kernel("add", {"n": "i32"}, on=target(image)), on=target(image))
    add = loader.load(path).kernel("add")
    assert add.fits(0) == (device in RUNS[image])
    if add.fits(0):
        add[(1,)](1)


@pytest.mark.parametrize(
    ("images", "device", "taken"),
    [
        # the nearest minor version is Tegra's
        (("sm_80", "sm_86", "sm_87"), 89, "sm_86"),
        (("sm_80", "sm_87"), 89, "sm_80"),
        (("sm_80", "sm_86", "sm_87"), 87, "sm_87"),
        (("sm_80", "sm_86"), 87, ""),
        (("sm_87",), 89, ""),
        (("sm_100a", "sm_110a"), 110, "sm_110a"),
        (("sm_100a", "sm_100f"), 101, ""),
        (("sm_100f", "sm_103a"), 103, "sm_103a"),
    ],
)
def test_a_device_takes_the_nearest_of_those_that_run_there(
    tmp_path: Path, fakecuda: FakeCuda, images: tuple[str, ...], device: int, taken: str
) -> None:
    fakecuda.set_devices(device)
    for number, image in enumerate(images):
        # the block size tells which one was launched
        made = kernel("add", {"n": "i32"}, configs=[{"num_warps": 1 << number}], on=target(image))
        make_bundle(tmp_path / f"add-{image}.nojit", made, on=target(image))
    add = loader.load(tmp_path).kernel("add")
    if not taken:
        with pytest.raises(NoMatchingVariantError, match=f"device is sm_{device}"):
            add[(1,)](1)
        return
    add[(1,)](1)
    assert fakecuda.last_launch().block[0] == 32 << images.index(taken)
