"""Images that are not what their table says, or not for this device or driver: refused before the driver sees them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from nojit.runtime import loader
from nojit.runtime.descriptor import TensorDescriptor
from nojit.runtime.errors import BundleError, BundleFormatError, DriverError, NoMatchingVariantError
from nojit.runtime.table.parts import Launch, Slot

from tests.abuse.test_table_rules import PACKED, PACKED_LIES
from tests.fakecuda import FakeCuda
from tests.runtime.conftest import Make
from tests.support.bundles import Parts, SyntheticKernel, kernel, make_bundle, target
from tests.support.cubins import CubinSpec, build_cubin
from tests.support.jsonlies import edit_table

Layout = tuple[Slot, ...]
# of {"x": "*fp16", "n": "i32", "m": "i64"}: x, n, m and two pointers to scratch memory
SIZES = (8, 4, 8, 8, 8)


@dataclass(frozen=True)
class Image:
    """What the cubin says, beside a table that says it is a plain kernel."""

    sizes: tuple[int, ...] = SIZES
    symbol: str = "add"
    num_warps: int = 4
    num_ctas: int = 1
    sm: int = 90
    suffix: str = "a"

    def build(self) -> bytes:
        """Make the cubin."""
        spec = CubinSpec(self.symbol, self.sizes, self.num_warps, self.num_ctas)
        return build_cubin(spec, sm=self.sm, suffix=self.suffix, abi=7 if self.sm < 90 else 8)


# an image, and what the error says of it
OTHER_IMAGES: dict[str, tuple[Image, str]] = {
    "one param less": (Image((8, 4, 8, 8)), "params"),
    "one param more": (Image((*SIZES, 8)), "params"),
    "no params": (Image(()), "params"),
    "4 for 8 bytes": (Image((8, 4, 4, 8, 8)), "params|bytes"),
    "8 for 4 bytes": (Image((8, 8, 8, 8, 8)), "params|bytes"),
    "no scratch": (Image((8, 4, 8)), "params"),
    "one scratch": (Image((8, 4, 8, 8)), "params"),
    "a tensor map": (Image((128, 4, 8, 8, 8)), "params|bytes"),
    "in another order": (Image((4, 8, 8, 8, 8)), "params|bytes"),
    "more warps": (Image(num_warps=8), "blocks of"),
    "fewer warps": (Image(num_warps=2), "blocks of"),
    "clusters": (Image(num_ctas=2), "clusters of"),
    "another symbol": (Image(symbol="sub"), "expected kernel 'add' in the image"),
    "another arch": (Image(sm=80, suffix=""), "sm_80"),
    "another chip": (Image(sm=100), "sm_100"),
    "not only for this chip": (Image(suffix=""), "sm_90"),
}


def with_image(path: Path, image: bytes) -> Path:
    """Write a bundle whose only image is another, sealed with right hashes."""
    parts = Parts.of(kernel("add", {"x": "*fp16", "n": "i32", "m": "i64"}))
    path.write_bytes(Parts(parts.index, parts.tables, ((image,),), ((1,),)).seal())
    return path


@pytest.mark.parametrize("case", OTHER_IMAGES)
def test_an_image_that_is_another_is_refused_at_first_launch_and_preload(
    tmp_path: Path, fakecuda: FakeCuda, case: str
) -> None:
    image, words = OTHER_IMAGES[case]
    add = loader.load(with_image(tmp_path / "other.nojit", image.build())).kernel("add")
    for call in (lambda: add[(1,)](0x1000, 1, 2), add.preload, lambda: add[(1,)](0x1000, 1, 2)):
        with pytest.raises(BundleError, match=words) as caught:
            call()
        assert "other.nojit" in str(caught.value)
    assert fakecuda.calls("cuLibraryLoadData") == 0
    assert fakecuda.launch_count() == 0


@pytest.mark.parametrize("size", [0, 1, 4, 63, 64, 500, 863])
def test_an_image_that_is_cut_never_reaches_the_driver(tmp_path: Path, fakecuda: FakeCuda, size: int) -> None:
    whole = Image().build()
    assert size < len(whole)
    path = tmp_path / "cut.nojit"
    try:
        add = loader.load(with_image(path, whole[:size])).kernel("add")
        with pytest.raises(BundleError):
            add[(1,)](0x1000, 1, 2)
    except BundleError:
        pass
    assert fakecuda.calls("cuLibraryLoadData") == 0


def test_the_image_itself_is_launched(tmp_path: Path, fakecuda: FakeCuda) -> None:
    loader.load(with_image(tmp_path / "right.nojit", Image().build())).kernel("add")[(1,)](0x1000, 1, 2, stream=0)
    assert fakecuda.last_launch().ints() == (0x1000, 1, 2, 0, 0)


CHANGES: dict[str, Callable[[Layout], Layout]] = {
    "a slot less": lambda slots: slots[:-1],
    "a slot twice": lambda slots: (*slots, slots[-1]),
    "no scratch": lambda slots: slots[:3],
    "another order": lambda slots: (slots[1], slots[0], *slots[2:]),
    "another type of that size": lambda slots: (Slot("x", "i64"), *slots[1:]),
    "another param": lambda slots: (slots[0], Slot("m", "i32"), *slots[2:]),
}


@pytest.mark.parametrize("case", CHANGES)
def test_a_table_with_another_layout_is_refused(tmp_path: Path, fakecuda: FakeCuda, case: str) -> None:
    made = kernel("add", {"x": "*fp16", "n": "i32", "m": "i64"})
    launches = tuple(changed(one, CHANGES[case]) for one in made.table.launches)
    path = make_bundle(tmp_path / "lie.nojit", SyntheticKernel(replace(made.table, launches=launches), made.images))
    with pytest.raises(BundleError):
        loader.load(path).kernel("add")[(1,)](0x1000, 1, 2)
    assert fakecuda.launch_count() == 0


def changed(launch: Launch, change: Callable[[Layout], Layout]) -> Launch:
    return replace(launch, layout=change(launch.layout))


@pytest.mark.parametrize("case", [case for case, (rule, _) in PACKED_LIES.items() if rule == "layout"])
def test_a_row_that_packs_something_else_is_never_launched(
    tmp_path: Path, tensor: Any, fakecuda: FakeCuda, case: str
) -> None:
    path = tmp_path / "lie.nojit"
    path.write_bytes(edit_table(Parts.of(PACKED), 0, PACKED_LIES[case][1]))
    packed, rules = loader.load(path).kernel("packed"), []
    block = TensorDescriptor(tensor(0x2000), (64, 32), (32, 1), (64, 32))
    # one call for the row without hints, one for that with them
    for group in ((tensor(0x1002), (5, None), 7), (tensor(0x1000), (16, None), 1)):
        try:
            packed[(1,)](group, block, True)
        except BundleFormatError as error:
            rules.append(error.rule)
    assert set(rules) == {"layout"}
    assert fakecuda.launch_count() == 2 - len(rules)


# devices and drivers


@pytest.mark.parametrize(
    ("built", "device", "runs"),
    [
        ("sm_80", 80, True), ("sm_80", 86, True), ("sm_80", 89, True), ("sm_80", 90, False), ("sm_80", 103, False),
        ("sm_90a", 90, True), ("sm_90a", 100, False), ("sm_100f", 103, True), ("sm_100a", 103, False),
        ("sm_120f", 121, True), ("sm_90a", 80, False),
    ],
)  # fmt: skip
def test_a_device_gets_what_runs_there_or_is_told_what_there_is(
    tmp_path: Path, fakecuda: FakeCuda, built: str, device: int, runs: bool
) -> None:
    fakecuda.set_devices(device)
    path = make_bundle(tmp_path / "a.nojit", kernel("add", {"n": "i32"}, on=target(built)), on=target(built))
    add = loader.load(path).kernel("add")
    assert add.fits(0) == runs
    if runs:
        add[(1,)](1)
        return
    for call in (lambda: add[(1,)](1), add.preload):
        with pytest.raises(NoMatchingVariantError, match=f"bundle has {built}; device is sm_{device}"):
            call()
    assert fakecuda.calls("cuLibraryLoadData") == 0


@pytest.mark.parametrize("version", [12000, 12020, 12090, 13000])
def test_a_driver_that_is_too_old_is_named_with_what_is_needed(make: Make, fakecuda: FakeCuda, version: int) -> None:
    add = make({"n": "i32"}, file={"min_driver": 13010})
    fakecuda.set_devices(90, driver_version=version)
    words = rf"expected a driver for CUDA 13\.1 or later, this one is for {version // 1000}\.{version % 1000 // 10}"
    for call in (lambda: add[(1,)](1), add.preload):
        with pytest.raises(DriverError, match=words) as caught:
            call()
        assert caught.value.code == 222
    assert fakecuda.calls("cuLibraryLoadData") == 0
    fakecuda.set_devices(90, driver_version=13010)
    add[(1,)](1)


@pytest.mark.parametrize("code", [200, 209, 218, 222, 301])
def test_an_image_that_the_driver_refuses_is_not_taken_for_loaded(make: Make, fakecuda: FakeCuda, code: int) -> None:
    add = make({"n": "i32"})
    fakecuda.fail("cuLibraryLoadData", code)
    for call in (lambda: add[(1,)](1), add.preload, lambda: add[(1,)](1)):
        with pytest.raises(DriverError, match="cuLibraryLoadData failed") as caught:
            call()
        assert caught.value.code == code
    fakecuda.reset()
    add[(1,)](1)


def test_nothing_is_compiled_behind_the_users_back(make: Make, tensor: Any, fakecuda: FakeCuda) -> None:
    # the fake takes a load with JIT options for a violation, and knows no PTX
    add = make()
    add.preload()
    add[(1,)](tensor(0x1000), tensor(0x2000), 5)
    assert fakecuda.violations() == []
