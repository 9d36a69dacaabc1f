"""Benchmarks of operators, up to what only a device says: which calls they make, and what they make of times."""

from __future__ import annotations

import math
import sys
from collections import Counter
from random import Random
from types import ModuleType

import pytest
import torch
from torch.overrides import TorchFunctionMode

from tests.aot.bench.conftest import load_script

# what is imported by others first
SCRIPTS = {
    name: load_script(name)
    for name in ("contest", "timing", "gemm", "scaled_mm", "mixed_mm", "b2b_gemm", "conv", "pointwise", "grouped_mm")
}
load_script("attention")
FLEX = load_script("flex")
RANDOM = [load_script(name) for name in ("block_sparse", "flex_decoding", "rotary", "scatter", "random_shapes")][-1]
CONTEST, TIMING = SCRIPTS["contest"], SCRIPTS["timing"]
FAMILIES = ("bmm", "mm_plus_mm", "decode", "whole", "ends", "bias", "fast", "blocks", "prefill", "b2b_gemm", "conv2d")
FAMILIES += ("conv3d", "operators", "shapes", "small", "deepseek", "mixtral", "qwen")
FAMILIES += ("deepseek_fp8", "mixtral_fp8", "qwen_fp8", "deepseek_blocks")


class OnMeta(TorchFunctionMode):
    """Makes operands of a GPU without memory, and has all results agree."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        named = dict(kwargs or {})
        if named.get("device") == "cuda":
            named["device"] = "meta"
        if function is torch.isclose:
            return torch.ones(())
        # where a loop fills the weights of 256 experts, those of one have all dtypes and shapes
        found = function(*args, **named)
        return found[:1] if function is torch.Tensor.unbind and args[0].is_meta else found


def row(label="some", group="mm", bars=None, rivals=(), **ms):
    return CONTEST.Row(group, label, ms, 0, 1000, bars or {}, rivals)


def device_ms(calls, rounds):
    calls["nojit"]()
    return dict.fromkeys(calls, 1.0)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch):
    """List the rows of a benchmark whose contenders take a millisecond each."""

    def measure(script: ModuleType, *, compile_too=False):
        if hasattr(script, "check"):
            monkeypatch.setattr(script, "check", lambda *_: None)
        monkeypatch.setattr(TIMING, "device_ms", device_ms)
        only = [script.GROUPS] if hasattr(script, "GROUPS") else []
        with OnMeta(), torch.no_grad():
            return list(script.list_rows(*only, 1, compile_too))

    return measure


def test_every_family_has_eight_shapes_and_names_of_their_own(measured):
    counts = Counter()
    for script in list(SCRIPTS.values())[2:]:
        rows = measured(script)
        assert len({(row.group, row.label) for row in rows}) == len(rows)
        # all that is promised is measured
        assert {group for group, _ in script.PROMISES} <= {row.group for row in rows}
        counts.update(row.group for row in rows)
    assert [family for family in FAMILIES if counts[family] < 8] == []


# a backward pass needs a stream of a device
@pytest.mark.parametrize("family", sorted({*RANDOM.FAMILIES} - {"attention_backward"}))
def test_random_shapes_are_what_operators_take(family, monkeypatch):
    scripts = (*SCRIPTS.values(), *(sys.modules[name] for name in ("block_sparse", "flex_decoding", "rotary")), RANDOM)
    for script in scripts:
        for name, stands_in in (("check", lambda *_: None), ("device_ms", device_ms)):
            if hasattr(script, name):
                monkeypatch.setattr(script, name, stands_in)
    draw = Random(family)
    with OnMeta(), torch.no_grad():
        rows = [RANDOM.FAMILIES[family](draw, 1) for _ in range(20)]
    assert len({row.label for row in rows}) > 15
    # what torch runs on no GPU alone is measured as well
    if family in {"gated_mm", "b2b_gemm", "conv3d", "block_sparse"}:
        assert all(None not in row.ms.values() for row in rows)
    assert family in RANDOM.TITLES


@pytest.mark.parametrize("name", ["gemm", "scaled_mm", "mixed_mm", "b2b_gemm", "conv", "pointwise", "grouped_mm"])
def test_what_does_not_compile_is_a_dash_with_its_reason(name, measured, monkeypatch, capsys):
    def refuses(function):
        def call(*operands):
            raise RuntimeError("no kernel is\nfast enough")

        return call

    monkeypatch.setattr(SCRIPTS[name], "compiled", refuses)
    rows = [row for row in measured(SCRIPTS[name], compile_too=True) if "compiled" in row.ms]
    assert rows
    assert {row.ms["compiled"] for row in rows} == {None}
    assert all(row.ratios.keys().isdisjoint({"compiled"}) for row in rows)
    said = capsys.readouterr().out
    for one in rows:
        assert f"{one.group}, {one.label}: compiled is left out: RuntimeError: no kernel is\n" in said
        assert "compiled       -" in one.line()


def test_what_nojit_raises_is_raised(monkeypatch):
    def fails():
        raise ValueError("wrong")

    monkeypatch.setattr(TIMING, "device_ms", lambda calls, _: {name: call() for name, call in calls.items()})
    with pytest.raises(ValueError, match="wrong"):
        TIMING.race({"nojit": fails, "torch": lambda: 1.0}, 1, "here")
    assert TIMING.race({"nojit": lambda: 2.0, "torch": fails}, 1, "here") == {"nojit": 2.0, "torch": None}


@pytest.mark.parametrize("value", [2.1, math.nan])
def test_a_wrong_result_ends_the_run(value):
    right = torch.tensor([1.0, -2.0])
    TIMING.check("here", torch.tensor([1.0, -2.01], dtype=torch.float64), right, 0.01)
    with pytest.raises(SystemExit, match="here: off by"):
        TIMING.check("here", torch.tensor([value, -2.0]), right, 0.01)


def test_ratios_are_to_what_ran_and_to_the_best_of_the_rivals():
    one = row(nojit=2.0, **{"nojit, scaled": 3.0}, torch=3.0, compiled=1.0, refused=None, rivals=("torch", "compiled"))
    assert one.ratios == {"torch": 1.5, "compiled": 0.5, "the best": 0.5}
    assert row(nojit=2.0, torch=3.0, compiled=None, rivals=("torch", "compiled")).ratios["the best"] == 1.5


def test_a_line_shows_rates_or_times_and_what_is_low():
    assert " ".join(row(nojit=2.0, torch=3.0, refused=None).line().split()) == (
        "mm some nojit 2000.0 torch 3000.0 refused - us 0.00 TB/s (1.50 x torch)"
    )
    assert row(nojit=2.0, torch=3.0, bars={"torch": 1.6}).line().endswith("(1.50 x torch)  LOW")
    rates = CONTEST.Row("mm", "some", {"nojit": 1.0, "torch": 2.0}, 10**12, 10**9)
    assert "nojit  1000.0  torch   500.0 TFLOP/s   1.00 TB/s" in rates.line()


@pytest.mark.parametrize(
    ("promise", "verdict"),
    [
        (None, ""),
        ({"mean": 1.0, "least": 0.5}, ": kept"),
        ({"mean": 1.01}, ": MISSED: mean below 1.01"),
        ({"mean": 2, "least": 0.8}, ": MISSED: mean below 2; small at 0.50, below 0.8"),
    ],
)
def test_a_group_is_judged_by_its_mean_and_its_least(promise, verdict, capsys):
    rows = [row("large", nojit=1.0, torch=2.0), row("small", nojit=2.0, torch=1.0)]
    promises = {} if promise is None else {("mm", "torch"): CONTEST.Promise(**promise)}
    assert CONTEST.judge(rows, promises) is not verdict.startswith(": MISSED")
    line = "mm to torch: geometric mean 1.000 of 2 shapes, least 0.50 at small"
    assert capsys.readouterr().out == f"{line}{verdict}\n"


def test_a_shape_may_have_a_bar_of_its_own(capsys):
    rows = [row("large", nojit=1.0, torch=2.0, bars={"torch": 3.0}), row("small", nojit=1.0, torch=1.0)]
    assert not CONTEST.judge(rows, {})
    assert "least 1.00 at small: MISSED: large at 2.00, below 3\n" in capsys.readouterr().out


def test_the_exit_status_says_whether_all_is_kept(tmp_path, capsys):
    for ms, status, word in ((2.0, 0, "kept"), (0.5, 1, "MISSED")):
        path = tmp_path / f"{status}.svg"
        with pytest.raises(SystemExit) as left:
            CONTEST.report(
                iter([row(nojit=1.0, torch=ms, refused=None)]),
                {("mm", "torch"): CONTEST.Promise(mean=1.0)},
                "Products",
                "a device",
                path,
            )
        assert left.value.code == status
        assert capsys.readouterr().out.endswith(f"bars: {word}\n")
        text = path.read_text()
        assert "mm, some, us" in text
        assert "refused" not in text


def test_the_command_line_chooses_groups(monkeypatch, capsys):
    monkeypatch.setenv("NOJIT_BUNDLES", "before")
    given = CONTEST.arguments("What it does.", ("a", "b"), 12, ["here", "--only", "b"])
    assert (given.only, given.rounds, given.compile, given.svg) == (["b"], 12, False, None)
    assert CONTEST.arguments(None, ("a", "b"), 12, ["here"]).only == ["a", "b"]
    with pytest.raises(SystemExit):
        CONTEST.arguments(None, ("a", "b"), 12, ["here", "--only", "b,c"])
    assert "--only: expected some of a,b, got c" in capsys.readouterr().err


# -- times over shares of active blocks --------------------------------------------------------------------------------


def test_times_on_a_line_are_on_it():
    line = FLEX.Line.nearest([(share, 0.1 + 1.5 * share) for share in (1.0, 0.5, 0.25, 0.1, 0.05)])
    assert (line.fixed_ms, line.blocks_ms) == (pytest.approx(0.1), pytest.approx(1.5))
    assert line.apart < 1e-9


def test_the_farthest_time_says_how_far_times_are_from_a_line():
    # halfway between the ends of a line through nothing, but 1.3 times as long
    line = FLEX.Line.nearest([(1.0, 1.0), (0.5, 0.65), (0.0625, 0.0625)])
    assert 0.1 < line.apart < 0.3
    assert line.apart == max(
        abs((line.fixed_ms + line.blocks_ms * share) / ms - 1)
        for share, ms in ((1.0, 1.0), (0.5, 0.65), (0.0625, 0.0625))
    )
    nearby = [FLEX.Line(line.fixed_ms + a, line.blocks_ms + b, 0) for a in (-0.01, 0.01) for b in (-0.01, 0.01)]

    def squares(each):
        return sum(
            ((each.fixed_ms + each.blocks_ms * share) / ms - 1) ** 2
            for share, ms in ((1.0, 1.0), (0.5, 0.65), (0.0625, 0.0625))
        )

    assert squares(line) < min(map(squares, nearby))


@pytest.mark.parametrize(("slow", "kept"), [(1.0, True), (1.5, False)])
def test_shares_are_held_to_a_line(monkeypatch, capsys, slow, kept):
    cases = [("anywhere", FLEX.Case(f"{share:.0%}", None), share) for share in FLEX.SHARES]
    monkeypatch.setattr(FLEX, "share_cases", lambda _: cases)
    monkeypatch.setattr(FLEX, "calls_of", lambda case, *_: (dict.fromkeys(("nojit", "torch"), case.name), 0))
    monkeypatch.setattr(FLEX, "agree", lambda _: True)

    def device_ms(calls, _):
        share = float(calls["nojit"].rstrip("%")) / 100
        ms = 0.1 + share
        return {"nojit": ms * (slow if share == 0.25 else 1), "torch": ms}

    monkeypatch.setattr(FLEX, "device_ms", device_ms)
    _, good = FLEX.measure_shares(1, 4096)
    assert good is kept
    printed = capsys.readouterr().out
    assert ("MISSED" not in printed) is kept
    assert "anywhere, torch: 0.100 ms + 1.000 ms x share, within 0.0%" in printed
