"""From an image in a bundle to a kernel in the driver: once, checked, and ahead of time if asked."""

from __future__ import annotations

import gc
import sys
import threading
from array import array
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from nojit import runtime
from nojit.runtime import loader
from nojit.runtime.errors import (
    BundleError,
    BundleIntegrityError,
    DriverError,
)
from nojit.runtime.first_call import callbacks
from nojit.runtime.first_call.rows_to_load import rows_to_load
from nojit.runtime.table.table import KernelTable

from tests.fakecuda import FakeCuda
from tests.runtime.conftest import Make
from tests.support.bundles import SyntheticKernel, kernel, make_bundle
from tests.support.tables import held

# loading


def lying(synthetic: SyntheticKernel, **launch: Any) -> SyntheticKernel:
    """Change what the table says of every launch, and leave the images."""
    launches = tuple(replace(one, **launch) for one in synthetic.table.launches)
    return SyntheticKernel(replace(synthetic.table, launches=launches), synthetic.images)


@pytest.mark.parametrize(
    ("lie", "message"),
    [
        ({"num_warps": 8}, "blocks of"),
        ({"num_ctas": 2}, "clusters of"),
        ({"symbol": "other"}, "expected kernel 'other' in the image"),
        ({"layout": ()}, "expected n as i32"),
    ],
)
def test_an_image_that_is_not_what_the_table_says_is_never_loaded(
    tmp_path: Path, fakecuda: FakeCuda, lie: dict[str, Any], message: str
) -> None:
    path = make_bundle(tmp_path / "lie.nojit", lying(kernel("add", {"n": "i32", "m": "i64"}), **lie))
    with pytest.raises(BundleError, match=message):
        loader.load(path).kernel("add")[(1,)](1, 2)
    assert fakecuda.calls("cuLibraryLoadData") == 0


def test_a_driver_that_disagrees_about_params_is_believed(tmp_path: Path, fakecuda: FakeCuda) -> None:
    path = make_bundle(tmp_path / "a.nojit", kernel("add", {"n": "i32"}))
    fakecuda.fail("cuKernelGetParamInfo", 1, call=1)
    with pytest.raises(BundleIntegrityError, match=r"expected the driver to find 3 params in 'add', got 1"):
        loader.load(path).kernel("add")[(1,)](1)
    assert fakecuda.launch_count() == 0


def test_an_old_driver_is_told_which_one_is_needed(make: Make, fakecuda: FakeCuda) -> None:
    fakecuda.set_devices(90, driver_version=12080)
    add = make({"n": "i32"}, file={"min_driver": 13000})
    with pytest.raises(DriverError, match=r"expected a driver for CUDA 13\.0 or later, this one is for 12\.8"):
        add[(1,)](1)
    assert fakecuda.calls("cuLibraryLoadData") == 0
    fakecuda.set_devices(90, driver_version=13000)
    add[(1,)](1)


@pytest.mark.parametrize(
    "function", ["cuLibraryLoadData", "cuLibraryGetKernel", "cuKernelGetParamInfo", "cuKernelSetAttribute"]
)
def test_a_load_that_fails_can_be_tried_again(make: Make, fakecuda: FakeCuda, function: str) -> None:
    add = make({"n": "i32"}, launch={"shared_bytes": 60_000})
    fakecuda.fail(function, 2, call=0)
    with pytest.raises(DriverError, match=rf"{function} failed, got CUDA_ERROR_OUT_OF_MEMORY \(2\)") as caught:
        add[(1,)](1)
    assert (caught.value.call, caught.value.code, caught.value.name) == (function, 2, "CUDA_ERROR_OUT_OF_MEMORY")
    add[(1,)](1)
    assert fakecuda.launch_count() == 1


def test_many_threads_load_an_image_once(make: Make, tensor: Any, fakecuda: FakeCuda) -> None:
    add = make()
    for function in ("cuLibraryLoadData", "cuLibraryGetKernel", "cuCtxGetCurrent", "cuDeviceGetAttribute"):
        fakecuda.delay(function, 50)
    count, failures = 32, []
    barrier = threading.Barrier(count)

    def run() -> None:
        try:
            barrier.wait()
            add[(1,)](tensor(0x1000), tensor(0x2000), 16)
        except Exception as error:  # noqa: BLE001 - told to the test's thread
            failures.append(error)

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert fakecuda.launch_count() == count
    assert len({launch.kernel for launch in fakecuda.launches()}) == 1
    assert fakecuda.calls("cuLibraryLoadData") == 1


def test_launches_of_one_image_never_lower_its_limits(tmp_path: Path, fakecuda: FakeCuda) -> None:
    made = kernel("add", {"n": "i32"}, configs=[{"num_warps": 4, "num_stages": stages} for stages in (2, 3)])
    launches = [replace(made.table.launches[0], shared_bytes=size) for size in (100_000, 60_000)]
    columns = made.table.columns | {"launch": array("I", [0, 1])}
    table = replace(made.table, launches=tuple(sorted(launches, key=str)), columns=columns)
    path = make_bundle(tmp_path / "a.nojit", SyntheticKernel(table, (made.images[0],) * 2))
    add = loader.load(path).kernel("add")
    for stages in (2, 3, 2, 3):
        add[(1,)](1, num_stages=stages)
    assert {launch.shared_bytes for launch in fakecuda.launches()} == {100_000, 60_000}
    assert fakecuda.calls("cuLibraryGetKernel") == 1
    for stages in (3, 2):
        fakecuda.lose_context(0)
        add[(1,)](1, num_stages=stages)
        add[(1,)](1, num_stages=5 - stages)


def test_a_launch_lets_other_threads_run(make: Make, fakecuda: FakeCuda) -> None:
    add = make({"n": "i32"})
    add[(1,)](1)
    with fakecuda.hold("cuLaunchKernel") as held:
        thread = threading.Thread(target=lambda: add[(1,)](2))
        thread.start()
        held.wait()  # it would never come here, did the launch hold the GIL
    thread.join()
    assert fakecuda.launch_count() == 2


def test_preload_leaves_nothing_for_launches_to_load(make: Make, tensor: Any, fakecuda: FakeCuda) -> None:
    add = make()
    assert add.preload(1) == 8
    assert add.preload(device=1) == 8
    assert fakecuda.calls("cuLibraryLoadData") == 8
    assert fakecuda.calls("cuKernelGetFunction") == 16
    for address in (0x1000, 0x1008):
        for warps in (2, 4):
            for dtype in ("float16", "float32"):
                add[(1,)](tensor(address, dtype, device=1), tensor(0x2000, dtype, device=1), 16, num_warps=warps)
    assert len({launch.kernel for launch in fakecuda.launches()}) == 8
    assert fakecuda.calls("cuLibraryLoadData") == 8


def test_a_launch_reads_no_row_that_a_preload_has_read(
    make: Make, tensor: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = make()
    add.preload()
    monkeypatch.setattr(callbacks, "read_row", None)
    add[(1,)](tensor(0x1000, "float16"), tensor(0x2000, "float16"), 16, num_warps=2)


def test_a_preload_keeps_few_rows(tmp_path: Path, fakecuda: FakeCuda) -> None:
    many = kernel("many", {"n": "i32", "MODE": "constexpr"}, matrix={"MODE": list(range(20))})
    with runtime.load(make_bundle(tmp_path / "a.nojit", many)) as bundle:
        bundle.preload()
        assert len(bundle.kernel("many")._rows) == 8
        for mode in range(20):
            bundle.kernel("many")[(1,)](1, MODE=mode)
        assert not bundle.kernel("many")._rows


@pytest.mark.parametrize(
    "options", [{}, {"configs": [{"num_warps": 2, "num_stages": 3}, {"num_stages": 4, "num_ctas": 1}]}]
)
def test_a_table_gives_the_signature_of_its_records(tmp_path: Path, options: dict[str, Any]) -> None:
    params = {"n": "i32", "scale": "fp32", "MODE": "constexpr"}
    made = kernel("defaults", params, matrix={"MODE": [1]}, defaults={"scale": 2.5, "MODE": 1}, **options)
    with runtime.load(make_bundle(tmp_path / "a.nojit", made)) as bundle:
        table = bundle.files[0].table("defaults")
    by_hand = KernelTable(*[getattr(table, name) for name in KernelTable.__match_args__])
    assert table.signature() == by_hand.signature()


def test_a_graph_capture_survives_preloaded_launches(
    make: Make, tensor: Any, faketorch: ModuleType, fakecuda: FakeCuda
) -> None:
    add = make(launch={"shared_bytes": 60_000, "global_scratch_bytes": 8})
    add.preload()
    stream = fakecuda.stream()
    faketorch.set_stream(0, stream)
    with fakecuda.capture(stream):
        add[(1,)](tensor(0x1000), tensor(0x2000), 16)
        del add
        gc.collect()
        assert fakecuda.capture_status(stream) == 1
    assert fakecuda.launch_count() == 1


def test_images_are_loaded_in_the_order_of_their_groups() -> None:
    made = kernel("add", {"n": "i32"}, configs=[{"num_warps": 1 << place} for place in range(5)]).table
    # two variants share image 2, and launch alike
    columns = {**made.columns, "image": array("I", [4, 2, 0, 2, 1]), "launch": array("I", [0, 1, 2, 1, 3])}
    table = held(replace(made, columns=columns))
    assert rows_to_load(table) == [2, 4, 1, 0]
    assert rows_to_load(table, {"num_warps": [2, 8, 16]}) == [4, 1]


def test_a_device_says_what_it_can_do(fakecuda: FakeCuda) -> None:
    assert runtime.device_capability(0) == 90
    fakecuda.set_devices(80, 120)
    assert [runtime.device_capability(device) for device in (0, 1)] == [80, 120]
    for wrong in (2, -1):
        with pytest.raises(runtime.DriverError, match="cuDeviceGet"):
            runtime.device_capability(wrong)


# one image, many bundles


def rounds_of(path: Path, count: int) -> None:
    """Load a bundle, launch it and close it, so many times."""
    for _ in range(count):
        with loader.load(path) as bundle:
            bundle.kernel("add")[(1,)](1)


def test_an_image_is_loaded_once_for_the_process(tmp_path: Path, fakecuda: FakeCuda) -> None:
    rounds_of(make_bundle(tmp_path / "a.nojit", kernel("add", {"n": "i32"})), 50)
    assert fakecuda.launch_count() == 50
    assert fakecuda.calls("cuLibraryLoadData") == 1
    assert len({launch.kernel for launch in fakecuda.launches()}) == 1


def test_an_image_is_known_by_its_group_whichever_bundle_holds_it(tmp_path: Path, fakecuda: FakeCuda) -> None:
    words: dict[str, Any] = {"params": {"n": "i32"}, "configs": [{"num_warps": 4}, {"num_warps": 8}]}
    add, other = kernel("add", **words), kernel("another", {"x": "*fp32"})
    one = make_bundle(tmp_path / "one.nojit", add, group_images=2)
    more = make_bundle(tmp_path / "more.nojit", other, add, group_images=2, name="other", version="2")
    alone = make_bundle(tmp_path / "alone.nojit", add, group_images=1)
    for path, loaded in ((one, 2), (more, 2), (alone, 4)):
        bundle = loader.load(path)
        for warps in (4, 8):
            bundle.kernel("add")[(1,)](1, num_warps=warps)
        assert fakecuda.calls("cuLibraryLoadData") == loaded


def test_what_one_bundle_says_of_an_image_binds_no_other(tmp_path: Path, fakecuda: FakeCuda) -> None:
    right = kernel("add", {"n": "i32"})
    rounds_of(make_bundle(tmp_path / "right.nojit", right), 1)
    wrong = loader.load(make_bundle(tmp_path / "wrong.nojit", lying(right, num_warps=8)))
    with pytest.raises(BundleIntegrityError, match="blocks of"):
        wrong.kernel("add")[(1,)](1)
    assert fakecuda.launch_count() == 1


def test_bundles_of_one_image_never_lower_its_limits(tmp_path: Path, fakecuda: FakeCuda) -> None:
    sizes = (100_000, 60_000)
    paths = [
        make_bundle(tmp_path / f"{size}.nojit", kernel("add", {"n": "i32"}, launch={"shared_bytes": size}))
        for size in sizes
    ]
    bundles = [loader.load(path) for path in paths]
    for _ in range(2):
        for bundle in bundles:
            bundle.kernel("add")[(1,)](1)
        fakecuda.lose_context(0)
    assert [launch.shared_bytes for launch in fakecuda.launches()] == [*sizes, *sizes]


def test_threads_with_bundles_of_their_own_load_an_image_once(tmp_path: Path, fakecuda: FakeCuda) -> None:
    path = make_bundle(tmp_path / "a.nojit", kernel("add", {"n": "i32"}))
    fakecuda.delay("cuLibraryLoadData", 50)
    threads = [threading.Thread(target=rounds_of, args=(path, 4)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert fakecuda.launch_count() == 32
    assert fakecuda.calls("cuLibraryLoadData") == 1


def test_a_closed_bundle_leaves_nothing_but_its_images(tmp_path: Path, fakecuda: FakeCuda) -> None:
    path = make_bundle(tmp_path / "a.nojit", kernel("add", {"n": "i32"}))

    def left_by(count: int) -> int:
        rounds_of(path, count)
        gc.collect()
        return sys.getallocatedblocks()

    left_by(10)
    # a Python without the GIL counts what it has yet to give back too: a leak is dozens of objects for each round
    assert left_by(200) - left_by(10) < 1000
    assert fakecuda.calls("cuLibraryLoadData") == 1
