"""Kernels with tuning tables: which config a launch runs, on which device, and that nothing else decides."""

from __future__ import annotations

import gc
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from nojit.runtime import Bundle, NoMatchingVariantError, SettingError, TuningError, _core, loader
from nojit.runtime.kernel import Kernel
from nojit.runtime.table.tuning import TunedDevice, Tuning, TuningBlock, TuningRow, TuningTable
from nojit.runtime.tuning.lookup import TuningDecision

from tests.fakecuda import FakeCuda
from tests.support.bundles import SyntheticKernel, kernel, make_bundle, target

H200 = TunedDevice("NVIDIA H200", "sm_90", 132, 140 << 30)
SMALL = TunedDevice("a small one", "sm_90", 16, 16 << 30)
ROWS = (
    TuningRow((0, 0), (2,), (0,)),
    TuningRow((16, 16), (1,), (0,)),
    TuningRow((4096, 4096), (2, 0), (0, 50)),
)
# of fp16; fp32 is not tuned
BLOCKS = (TuningBlock.of((0,), ROWS),)
TABLE = TuningTable(H200, BLOCKS)
OTHER = TuningTable(SMALL, (TuningBlock.of((0,), (TuningRow((16, 16), (2,), (0,)),)),))
PARAMS = {"x": "*{dtype}", "n": "i64", "m": "i64", "BLOCK": "constexpr"}
CONFIGS = [{"BLOCK": 64, "num_warps": 1}, {"BLOCK": 128, "num_warps": 2}, {"BLOCK": 256, "num_warps": 4}]
# of one kernel and device that the core remembers
KEYS_MAX = 65_536
# threads of a block, by config
THREADS = (32, 64, 128)


def tuned(
    *tables: TuningTable,
    name: str = "scale",
    key: tuple[str, ...] = ("n", "n * m"),
    configs: Sequence[Mapping[str, Any]] = CONFIGS,
    **facts: Any,
) -> SyntheticKernel:
    tuning = Tuning(key, "quarter_pow2", tables) if key else None
    return kernel(name, PARAMS, matrix={"dtype": ["fp16", "fp32"]}, configs=configs, tuning=tuning, **facts)


Open = Callable[..., Bundle]


@pytest.fixture
def open_bundle(fakecuda: FakeCuda, tmp_path: Path) -> Iterator[Open]:
    opened: list[Bundle] = []

    def build(*kernels: SyntheticKernel, **facts: Any) -> Bundle:
        opened.append(loader.load(make_bundle(tmp_path / f"{len(opened)}.nojit", *kernels, **facts)))
        return opened[-1]

    yield build
    for bundle in opened:
        bundle.close()


@pytest.fixture
def runs(fakecuda: FakeCuda, faketorch: ModuleType) -> Callable[..., int]:
    """Launch a kernel, and say which config ran."""

    def run(scale: Kernel, n: object, m: object = 1, dtype: str = "float16", device: int = 0, **named: Any) -> int:
        scale[(1,)](faketorch.Tensor(4096, dtype, device=device), n, m, **named)
        return THREADS.index(fakecuda.last_launch().block[0])

    return run


@pytest.fixture
def half(faketorch: ModuleType) -> Any:
    """A tensor of fp16."""
    return faketorch.Tensor(4096, "float16")


@pytest.fixture
def resolved(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the calls that a plan is made for."""
    seen: list[int] = []
    decide = Kernel._plan_of

    def count(self: Kernel, device: int, row: int) -> Any:
        seen.append(device)
        return decide(self, device, row)

    monkeypatch.setattr(Kernel, "_plan_of", count)
    return seen


def test_the_nearest_row_decides(open_bundle: Open, runs: Callable[..., int]) -> None:
    scale = open_bundle(tuned(TABLE)).kernel("scale")
    assert [runs(scale, n) for n in (16, 17, 4096, 3900, 100, 1 << 40, 0, -5)] == [1, 1, 2, 2, 1, 2, 2, 2]
    assert runs(scale, 1 << 62, 4) == 2, "n * m does not fit: it counts as 0"
    assert runs(scale, 16, dtype="float32") == 0, "not tuned: the table's order"


def test_what_the_caller_says_goes_first(open_bundle: Open, runs: Callable[..., int]) -> None:
    scale = open_bundle(tuned(TABLE)).kernel("scale")
    assert runs(scale, 16, BLOCK=64) == 0
    assert runs(scale, 16, num_warps=4) == 2
    assert runs(scale, 16) == 1


def test_one_decision_for_each_bucket(open_bundle: Open, runs: Callable[..., int], resolved: list[int]) -> None:
    rows = (TuningRow((4096,), (1,), (0,)), TuningRow((8192,), (2,), (0,)))
    scale = open_bundle(tuned(TuningTable(H200, (TuningBlock.of((0,), rows),)), key=("n",))).kernel("scale")
    for n in range(3840, 4608):
        runs(scale, n)
    assert len(resolved) == 1
    runs(scale, 4608)
    assert len(resolved) == 2


def test_without_tables_nothing_is_asked(open_bundle: Open, runs: Callable[..., int], resolved: list[int]) -> None:
    scale = open_bundle(tuned()).kernel("scale")
    assert {runs(scale, n) for n in (1, 16, 4096)} == {0}
    assert len(resolved) == 1


def test_each_device_has_the_table_most_like_it(
    open_bundle: Open, half: Any, runs: Callable[..., int], fakecuda: FakeCuda
) -> None:
    fakecuda.set_size(1, 20, 24 << 30)
    scale = open_bundle(tuned(TABLE, OTHER)).kernel("scale")
    assert [runs(scale, 16, device=device) for device in (0, 1, 0, 1)] == [1, 2, 1, 2]
    assert fakecuda.calls("cuDeviceGetName") == 2
    assert scale.explain(half, 16, 1, device=1).tuning.device == "a small one"
    assert scale.explain(half, 16, 1, device=0).tuning.device == "NVIDIA H200"
    assert scale.explain(half, 16, 1, arch="sm_90").tuning.device == "NVIDIA H200"


def test_estimates_choose_for_the_device_at_hand(
    open_bundle: Open, half: Any, runs: Callable[..., int], fakecuda: FakeCuda
) -> None:
    fakecuda.set_size(1, 4, 24 << 30)
    # a wave of 2 elements for each multiprocessor, or one of 8 that takes twice as long
    costs = ((1, "key0 2 multiprocessors * cdiv() 1000000 *"), (2, "key0 8 multiprocessors * cdiv() 2000000 *"))
    block = TuningBlock.of((0,), (TuningRow((16, 16), (0,), (0,)),), costs)
    scale = open_bundle(tuned(TuningTable(H200, (block,)))).kernel("scale")
    assert [runs(scale, n, device=0) for n in (16, 24, 256, 600, 1000)] == [0, 1, 1, 2, 2]
    assert [runs(scale, n, device=1) for n in (16, 24, 256, 7)] == [0, 2, 2, 1]
    assert scale.explain(half, 24, 1, device=0).tuning.estimated_us == (1.0, 2.0)
    assert scale.explain(half, 24, 1, device=1).tuning.estimated_us == (2.0, 3.0)
    assert scale.explain(half, 16, 1, device=1).tuning.estimated_us == ()


def test_one_table_serves_every_device_unasked(open_bundle: Open, runs: Callable[..., int], fakecuda: FakeCuda) -> None:
    fakecuda.set_size(1, 20, 24 << 30)
    scale = open_bundle(tuned(TABLE)).kernel("scale")
    assert [runs(scale, 16, device=device) for device in (0, 1)] == [1, 1]
    assert fakecuda.calls("cuDeviceGetName") == fakecuda.calls("cuDeviceTotalMem_v2") == 0


def test_preloaded_kernels_load_nothing(open_bundle: Open, runs: Callable[..., int], fakecuda: FakeCuda) -> None:
    bundle = open_bundle(tuned(TABLE))
    assert bundle.preload() == 6
    loaded = fakecuda.calls("cuLibraryLoadData")
    for n in (1, 16, 4096):
        runs(bundle.kernel("scale"), n)
    assert fakecuda.calls("cuLibraryLoadData") == loaded


def test_explain_says_which_row_decides(open_bundle: Open, half: Any) -> None:
    bundle = open_bundle(tuned(TABLE))
    why = bundle.kernel("scale").explain(half, 3900, 1, arch="sm_90")
    assert why.key == {"n": 3900, "n * m": 3900}
    assert why.config["BLOCK"] == 256
    assert why.case == {"dtype": "fp16"}
    path = bundle.files[0].path
    order = ("BLOCK=256 num_warps=4 num_ctas=1 num_stages=3", "BLOCK=64 num_warps=1 num_ctas=1 num_stages=3")
    assert why.tuning == TuningDecision("NVIDIA H200", path, (4096, 4096), exact=True, order=order)
    assert not bundle.kernel("scale").explain(half, 100, 1, arch="sm_90").tuning.exact


def test_explain_says_the_key_without_tables(open_bundle: Open, half: Any) -> None:
    why = open_bundle(tuned()).kernel("scale").explain(half, 16, 3, arch="sm_90")
    assert (why.key, why.tuning) == ({"n": 16, "n * m": 48}, None)


CHILD = """
import json, sys
from nojit import runtime

class dtype:
    def __str__(self):
        return "torch.float16"

scale = runtime.load(sys.argv[1]).kernel("scale")
ran = {n: scale.warmup(dtype(), n, 1).variant for n in json.loads(sys.argv[2])}
print(json.dumps(ran, sort_keys=True))
"""


def test_two_starts_choose_alike_whatever_comes_first(fakecuda: FakeCuda, tmp_path: Path) -> None:
    path = make_bundle(tmp_path / "t.nojit", tuned(TABLE, OTHER))
    # several in each bucket, nearest to one row and to another
    numbers = [*range(1, 20), *range(200, 300, 7), *range(1000, 5000, 300)]
    said = set()
    for order in (numbers, numbers[::-1], numbers[7:] + numbers[:7]):
        command = [sys.executable, "-c", CHILD, str(path), json.dumps(order)]
        done = subprocess.run(command, env=fakecuda.environment(90), capture_output=True, text=True, check=True)
        said.add(done.stdout)
    assert len(said) == 1
    assert len({label.partition(" of ")[0] for label in json.loads(said.pop()).values()}) == 2


# tables of one's own

FILE = """
schema = 1
kernel = "{kernel}"
key = ["n", "n * m"]
[device]
name = "{name}"
arch = "{arch}"
multiprocessors = {multiprocessors}
memory_bytes = {memory_bytes}
[[config]]
BLOCK = {block}
[[entry]]
where = {{ dtype = "fp16" }}
rows = [{{ at = [1, 1], use = [0] }}]
"""


def text_of(kernel: str = "scale", device: TunedDevice = H200, block: int = 64) -> str:
    facts = dict(zip(TunedDevice.__match_args__, (getattr(device, f) for f in TunedDevice.__match_args__), strict=True))
    return FILE.format(kernel=kernel, block=block, **facts)


@pytest.fixture
def override(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., list[Path]]:
    """Let ``NOJIT_TUNING`` name files with these texts."""
    folder = tmp_path / "tuned"
    folder.mkdir()

    def write(*texts: str, whole: bool = False) -> list[Path]:
        paths = [folder / f"{number}.toml" for number in range(len(texts))]
        for path, text in zip(paths, texts, strict=True):
            path.write_text(text, encoding="utf-8")
        monkeypatch.setenv("NOJIT_TUNING", str(folder) if whole else os.pathsep.join(map(str, paths)))
        return paths

    return write


@pytest.mark.parametrize("whole", [False, True])
def test_files_override_the_bundle(
    open_bundle: Open, half: Any, runs: Callable[..., int], override: Callable[..., list[Path]], whole: bool
) -> None:
    _, path = override(text_of("another"), text_of(), whole=whole)
    bundle = open_bundle(tuned(TABLE), tuned(TABLE, name="kept"))
    assert [runs(bundle.kernel("scale"), n) for n in (16, 4096)] == [0, 0]
    assert [runs(bundle.kernel("kept"), n) for n in (16, 4096)] == [1, 2]
    decision = bundle.kernel("scale").explain(half, 2, 2, arch="sm_90").tuning
    assert (decision.source, decision.at, decision.exact) == (str(path), (1, 1), False)


def test_files_tune_a_kernel_without_a_key(
    open_bundle: Open, runs: Callable[..., int], override: Callable[..., list[Path]]
) -> None:
    override(text_of(block=256))
    scale = open_bundle(tuned(key=())).kernel("scale")
    assert [runs(scale, 16), runs(scale, 16, dtype="float32")] == [2, 0]


def test_files_of_two_devices(
    open_bundle: Open, runs: Callable[..., int], override: Callable[..., list[Path]], fakecuda: FakeCuda
) -> None:
    override(text_of(block=128), text_of(device=SMALL, block=256))
    fakecuda.set_size(1, 20, 24 << 30)
    scale = open_bundle(tuned()).kernel("scale")
    assert [runs(scale, 16, device=device) for device in (0, 1)] == [1, 2]


def test_files_for_another_arch_change_nothing(
    open_bundle: Open, runs: Callable[..., int], override: Callable[..., list[Path]]
) -> None:
    override(text_of(device=replace(H200, arch="sm_80"), block=999))
    assert runs(open_bundle(tuned(TABLE)).kernel("scale"), 16) == 1


def test_an_empty_variable_names_nothing(
    open_bundle: Open, runs: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOJIT_TUNING", "")
    assert runs(open_bundle(tuned(TABLE)).kernel("scale"), 16) == 1


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ([text_of().replace("n * m", "n * k")], "expected runtime params of kernel scale, got 'k'.* - at .*0.toml"),
        ([text_of(block=999)], "expected a config of kernel scale, .*, got BLOCK=999 - at .*0.toml .*config.0."),
        ([text_of().replace("dtype =", "dtypes =")], "expected axes of kernel scale, got 'dtypes'; .*entry.0..where"),
        (
            [text_of(), text_of(block=128)],
            "expected each device once for a kernel, got the device of .*0.toml again - at .*1.toml",
        ),
        (
            [text_of(), text_of(device=SMALL).replace("n * m", "m")],
            "expected the same key as in .*0.toml: n, n . m, got n, m",
        ),
        ([text_of("another").replace("schema = 1", "schema = 2")], "expected schema 1, got 2 - at .*0.toml"),
    ],
)
def test_files_that_are_wrong_are_refused_when_a_bundle_is_loaded(
    open_bundle: Open, override: Callable[..., list[Path]], texts: list[str], message: str
) -> None:
    override(*texts)
    with pytest.raises(TuningError, match=message):
        open_bundle(tuned(key=()))


def test_places_that_are_not_there(open_bundle: Open, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for place, message in (
        (
            "none.toml",
            r"expected a tuned table or a folder of them, got No such file .* - at NOJIT_TUNING: .*none.toml",
        ),
        ("empty", r"expected \*.toml files, got none - at NOJIT_TUNING: .*empty"),
    ):
        monkeypatch.setenv("NOJIT_TUNING", str(tmp_path / place))
        with pytest.raises(TuningError, match=message):
            open_bundle(tuned(TABLE))


def test_each_bundle_of_a_folder_is_overridden_for_its_own_arch(
    fakecuda: FakeCuda, runs: Callable[..., int], override: Callable[..., list[Path]], tmp_path: Path
) -> None:
    override(text_of(), text_of(device=TunedDevice("A100", "sm_80", 108, 80 << 30), block=128))
    fakecuda.set_devices(90, 80)
    for image_arch in ("sm_80", "sm_90a"):
        on = target(image_arch)
        make_bundle(tmp_path / f"{image_arch}.nojit", tuned(on=on), on=on)
    with loader.load(tmp_path) as bundle:
        assert [runs(bundle.kernel("scale"), 16, device=device) for device in (0, 1)] == [0, 1]


def test_the_order_of_calls_does_not_matter(open_bundle: Open, runs: Callable[..., int]) -> None:
    numbers = (3585, 4096, 4607, 16, 100)
    said = set()
    for order in itertools.permutations(numbers):
        scale = Kernel("scale", open_bundle(tuned(TABLE)).kernel("scale")._bundles.bundles)
        said.add(tuple(sorted((n, runs(scale, n)) for n in order)))
    assert len(said) == 1


# one config for each case, whatever the batch


@pytest.fixture
def invariant(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask for results that do not depend on the batch."""
    monkeypatch.setenv("NOJIT_BATCH_INVARIANT", "1")


NUMBERS = (1, 16, 17, 100, 4096, 1 << 40)


@pytest.mark.usefixtures("invariant")
def test_one_config_serves_every_size(open_bundle: Open, runs: Callable[..., int], resolved: list[int]) -> None:
    # behind in sum: the first never measured where the others are, the second 1000 in one row, the third nothing but there
    rows = (
        TuningRow((0, 0), (2, 1), (0, 30)),
        TuningRow((16, 16), (1, 2), (0, 500)),
        TuningRow((4096, 4096), (2, 0), (0, 50)),
    )
    scale = open_bundle(tuned(TuningTable(H200, (TuningBlock.of((0,), rows),)))).kernel("scale")
    assert {runs(scale, n) for n in NUMBERS} == {2}
    assert {runs(scale, n, dtype="float32") for n in NUMBERS} == {0}, "not measured: the table's order"
    assert len(resolved) == 2, "sizes are no longer asked about"
    assert runs(scale, 16, BLOCK=128) == 1, "what the caller says goes first"


@pytest.mark.usefixtures("invariant")
@pytest.mark.parametrize("key", [(), ("n", "n * m")])
def test_what_asks_about_the_batch_comes_last(
    open_bundle: Open, runs: Callable[..., int], key: tuple[str, ...]
) -> None:
    asks = [{**CONFIGS[0], "requires": "n > 64"}, {**CONFIGS[1], "requires": "m > 1"}, CONFIGS[2]]
    scale = open_bundle(tuned(key=key, configs=asks, batch=["n"])).kernel("scale")
    assert {runs(scale, n) for n in NUMBERS} == {2}
    assert {runs(scale, n, 2) for n in NUMBERS} == {1}, "m does not grow with the batch"


def test_without_the_variable_the_batch_decides_as_ever(open_bundle: Open, runs: Callable[..., int]) -> None:
    asks = [{**CONFIGS[0], "requires": "n > 64"}, *CONFIGS[1:]]
    scale = open_bundle(tuned(configs=asks, batch=["n"])).kernel("scale")
    assert [runs(scale, n) for n in (16, 100)] == [1, 0]


@pytest.mark.usefixtures("invariant")
def test_what_asks_about_the_batch_serves_what_nothing_else_does(open_bundle: Open, runs: Callable[..., int]) -> None:
    asks = [{**CONFIGS[0], "requires": "n > 64"}, {**CONFIGS[1], "requires": "m == 2"}]
    scale = open_bundle(tuned(configs=asks, batch=["n"])).kernel("scale")
    assert [runs(scale, 100, 2), runs(scale, 100, 1)] == [1, 0]


@pytest.mark.usefixtures("invariant")
def test_measured_configs_that_ask_about_the_batch_come_behind_others(
    open_bundle: Open, runs: Callable[..., int]
) -> None:
    asks = [CONFIGS[0], CONFIGS[1], {**CONFIGS[2], "requires": "n > 0"}]
    scale = open_bundle(tuned(TABLE, configs=asks, batch=["n"])).kernel("scale")
    # the third is best twice, but asks; the others are as far behind as one another
    assert {runs(scale, n) for n in NUMBERS} == {0}


@pytest.mark.usefixtures("invariant")
def test_explain_says_that_no_size_decides(open_bundle: Open, half: Any) -> None:
    bundle = open_bundle(tuned(TABLE))
    why = bundle.kernel("scale").explain(half, 3900, 1, arch="sm_90")
    assert why.key == {}
    assert (why.tuning.device, why.tuning.source, why.tuning.at) == ("NVIDIA H200", bundle.files[0].path, ())
    assert why.tuning.order[0].startswith(f"BLOCK={why.config['BLOCK']} ")


@pytest.mark.usefixtures("invariant")
def test_another_device_has_one_order_too(
    open_bundle: Open, runs: Callable[..., int], override: Callable[..., list[Path]], fakecuda: FakeCuda
) -> None:
    override(text_of(block=128), text_of(device=SMALL, block=256))
    fakecuda.set_size(1, 20, 24 << 30)
    scale = open_bundle(tuned()).kernel("scale")
    assert [{runs(scale, n, device=device) for n in NUMBERS} for device in (0, 1)] == [{1}, {2}]


def test_the_variable_can_say_no(open_bundle: Open, runs: Callable[..., int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOJIT_BATCH_INVARIANT", "0")
    assert runs(open_bundle(tuned(TABLE)).kernel("scale"), 16) == 1


@pytest.mark.parametrize("said", ["true", ""])
def test_the_variable_is_0_or_1(open_bundle: Open, monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    monkeypatch.setenv("NOJIT_BATCH_INVARIANT", said)
    with pytest.raises(SettingError, match=f"expected 0 or 1, got {said!r} - at NOJIT_BATCH_INVARIANT"):
        open_bundle(tuned(TABLE))


def test_keys_without_end_are_remembered_up_to_a_limit(open_bundle: Open, fakecuda: FakeCuda) -> None:
    table = TuningTable(H200, (TuningBlock.of((0,), (TuningRow((5,), (1, 0), (0, 9)),)),))
    made = kernel(
        "grow", {"n": "i32", "BLOCK": "constexpr"}, configs=CONFIGS[:2], tuning=Tuning(("n",), "exact", (table,))
    )
    grow = open_bundle(made).kernel("grow")
    launch = grow.bind((1,))
    for n in range(KEYS_MAX + 10):
        launch(n)
    (spec,) = [referent for referent in gc.get_referents(grow) if isinstance(referent, _core.Spec)]
    assert len(spec) == KEYS_MAX
    for n in (5, KEYS_MAX + 5, KEYS_MAX + 5):
        launch(n)
        assert fakecuda.last_launch().ints()[0] == n
    assert len(spec) == KEYS_MAX


def test_a_toolchain_is_chosen_by_a_table_or_by_the_call(open_bundle: Open, runs: Callable[..., int]) -> None:
    names = ("3.9", "3.6", "3.6")
    configs = [{**config, "toolchain": name} for config, name in zip(CONFIGS, names, strict=True)]
    scale = open_bundle(tuned(TABLE, configs=configs)).kernel("scale")
    assert runs(scale, 16, 16) == runs(scale, 16, 16, toolchain="3.6") == 1
    assert runs(scale, 16, 16, toolchain="3.9") == 0
    with pytest.raises(NoMatchingVariantError, match="toolchain"):
        runs(scale, 16, 16, toolchain="3.7")
