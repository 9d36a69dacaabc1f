from __future__ import annotations

from pathlib import Path

import pytest
from nojit.runtime.errors import TuningError
from nojit.runtime.tuning.tuned_tables import TunedConfig, TunedDevice, TunedEntry, TunedRow, TunedTable, read_tuned
from nojit.runtime.values import DType, FunctionRef

TEXT = """\
schema = 1
kernel = "scale"
key = ["n", "batch * heads"]

[device]
name = "NVIDIA H200"
arch = "sm_90"
multiprocessors = 132
memory_bytes = 150754820096

[origin]
tool = "a tool"

[[config]]
BLOCK = 128
HALF = 0.5
num_warps = 8
requires = "n > 3"

[[config]]
BLOCK = 64
ACC = { dtype = "fp32" }
EPILOGUE = { function = "a:b" }
maxnreg = { none = true }
SHAPE = [1, 2]

[[entry]]
where = { dtype = ["bf16", "fp16"], CAUSAL = true }
rows = [
    { at = [4096, 128], use = [0, 1], us = [412.1, 420] },
    { at = [0, 1], use = [1] },
]

[[entry]]
rows = [{ at = [1, 1], use = [0] }]
"""


def read(tmp_path: Path, text: str) -> TunedTable:
    path = tmp_path / "t.toml"
    path.write_text(text, encoding="utf-8")
    return read_tuned(path)


def test_a_table_is_read(tmp_path: Path) -> None:
    settings = (("ACC", DType("fp32")), ("EPILOGUE", FunctionRef("a:b")), ("maxnreg", None), ("SHAPE", (1, 2)))
    assert read(tmp_path, TEXT) == TunedTable(
        "scale",
        ("n", "batch * heads"),
        TunedDevice("NVIDIA H200", "sm_90", 132, 150754820096),
        (("tool", "a tool"),),
        (
            TunedConfig((("BLOCK", 128), ("HALF", 0.5), ("num_warps", 8)), "n > 3"),
            TunedConfig((("BLOCK", 64), *settings), ""),
        ),
        (
            TunedEntry(
                (("dtype", ("bf16", "fp16")), ("CAUSAL", (True,))),
                (TunedRow((4096, 128), (0, 1), (412.1, 420.0)), TunedRow((0, 1), (1,), ())),
            ),
            TunedEntry((), (TunedRow((1, 1), (0,), ()),)),
        ),
        str(tmp_path / "t.toml"),
    )


def test_an_entry_covers_by_type_and_value() -> None:
    entry = TunedEntry((("CAUSAL", (True,)), ("D", (64, 128))), ())
    assert entry.covers({"CAUSAL": True, "D": 64, "dtype": "fp16"})
    assert not entry.covers({"CAUSAL": 1, "D": 64})
    assert not entry.covers({"CAUSAL": True, "D": 32})
    assert not entry.covers({"CAUSAL": True})
    assert TunedEntry((), ()).covers({})


CASES = {
    "no TOML": (TEXT, "schema =", "expected TOML in UTF-8, got "),
    "another schema": ("schema = 1", "schema = 2", "expected schema 1, got 2 - at {path} $.schema"),
    "a true schema": ("schema = 1", "schema = true", "expected schema 1, got True - at {path} $.schema"),
    "a misspelt key": (
        "[origin]",
        "[orign]",
        (
            "expected one of the keys schema, kernel, key, names, device, origin, config, entry, got 'orign'; did you mean 'origin'?"
            " - at {path} $.orign"
        ),
    ),
    "no kernel": ('kernel = "scale"\n', "", "expected the key 'kernel', got none - at {path} $"),
    "a kernel by number": ('"scale"', "1", "expected a string, got 1 - at {path} $.kernel"),
    "no keys": ('["n", "batch * heads"]', "[]", "expected an array that is not empty, got [] - at {path} $.key"),
    "nine keys": (
        '["n", "batch * heads"]',
        str(["n"] * 9),
        "expected at most 8 expressions, got 9 - at {path} $.key",
    ),
    "a key that is none": ('"batch * heads"', '"batch *"', "expected an expression: expected"),
    "a device without arch": ('arch = "sm_90"\n', "", "expected the key 'arch', got none - at {path} $.device"),
    "another arch": (
        '"sm_90"',
        '"hopper"',
        "expected a printable name and an arch such as 'sm_90', got 'NVIDIA H200', 'hopper' - at {path} $.device",
    ),
    "an arch in other digits": (
        '"sm_90"',
        '"sm_\u0669\u0660"',
        "expected a printable name and an arch such as 'sm_90'",
    ),
    "an arch of one digit": ('"sm_90"', '"sm_9"', "expected a printable name and an arch such as 'sm_90'"),
    "too deep": ("SHAPE = [1, 2]", f"SHAPE = {'[' * 5000}", "expected TOML of a modest depth - at {path}"),
    "no multiprocessors": (
        "= 132",
        "= 0",
        f"expected a number from 1 to {2**63 - 1}, got 0 - at {{path}} $.device.multiprocessors",
    ),
    "memory in floats": (
        "150754820096",
        "150e9",
        "expected an integer, got 150000000000.0 - at {path} $.device.memory_bytes",
    ),
    "an origin of numbers": ('"a tool"', "1", "expected a string, got 1 - at {path} $.origin.tool"),
    "a config twice": (
        "SHAPE = [1, 2]",
        '[[config]]\nnum_warps = 8\nBLOCK = 128\nHALF = 0.5\nrequires = "n > 3"',
        "expected each config once, got the settings of config[0] again - at {path} $.config[2]",
    ),
    "an empty config": (
        "SHAPE = [1, 2]",
        "[[config]]",
        "expected constexprs and options, got none - at {path} $.config[2]",
    ),
    "a config of dates": (
        "SHAPE = [1, 2]",
        "SHAPE = 2026-01-01",
        (
            "expected an int, float, bool, string, array, {{dtype = ...}}, {{function = ...}} or {{none = true}}, got "
            "datetime.date(2026, 1, 1) - at {path} $.config[1].SHAPE"
        ),
    ),
    "requires that is none": ('"n > 3"', '"n >"', "expected an expression: expected"),
    "requires by number": ('"n > 3"', "3", "expected a string, got 3 - at {path} $.config[0].requires"),
    "no rows": (
        "[{ at = [1, 1], use = [0] }]",
        "[]",
        "expected an array that is not empty, got [] - at {path} $.entry[1].rows",
    ),
    "an axis of no values": (
        '["bf16", "fp16"]',
        "[]",
        "expected an array that is not empty, got [] - at {path} $.entry[0].where.dtype",
    ),
    "a key value too few": (
        "at = [0, 1]",
        "at = [0]",
        "expected 2 numbers, one for each key, got 1 - at {path} $.entry[0].rows[1].at",
    ),
    "a negative key value": (
        "at = [0, 1]",
        "at = [0, -1]",
        f"expected a number from 0 to {2**63 - 1}, got -1 - at {{path}} $.entry[0].rows[1].at",
    ),
    "a row twice": (
        "at = [0, 1]",
        "at = [4096, 128]",
        "expected each `at` once, got the values of rows[0] again - at {path} $.entry[0].rows[1].at",
    ),
    "another config": (
        "use = [0, 1]",
        "use = [0, 2]",
        "expected a number from 0 to 1, got 2 - at {path} $.entry[0].rows[0].use",
    ),
    "a true config": (
        "use = [0, 1]",
        "use = [0, true]",
        "expected an integer, got True - at {path} $.entry[0].rows[0].use[1]",
    ),
    "a config used twice": (
        "use = [0, 1]",
        "use = [1, 1]",
        "expected each config once, got [1, 1] - at {path} $.entry[0].rows[0].use",
    ),
    "a time too few": (
        "us = [412.1, 420]",
        "us = [412.1]",
        "expected 2 positive numbers, one for each config in `use`, got [412.1] - at {path} $.entry[0].rows[0].us",
    ),
    "no time": (
        "us = [412.1, 420]",
        "us = [412.1, nan]",
        "expected 2 positive numbers, one for each config in `use`, got [412.1, nan] - at {path} $.entry[0].rows[0].us",
    ),
    "a name too few": (
        "[device]",
        'names = ["n"]\n[device]',
        "expected 2 names, one for each number of the key, got 1 - at {path} $.names",
    ),
    "a name that is none": (
        "[device]",
        'names = ["n", "2 * n"]\n[device]',
        "expected a name, got '2 * n' - at {path} $.names[1]",
    ),
    "a name that is the device's": (
        "[device]",
        'names = ["multiprocessors", "n"]\n[device]',
        "expected a name, got 'multiprocessors' - at {path} $.names[0]",
    ),
    "a name twice": (
        "[device]",
        'names = ["n", "n"]\n[device]',
        "expected each name once, got 'n' - at {path} $.names[1]",
    ),
    "no costs": ("rows = [{ at = [1, 1]", "costs = []\nrows = [{ at = [1, 1]", "expected an array that is not empty"),
    "a cost of what nobody named": (
        "rows = [{ at = [1, 1]",
        'costs = [{ config = 0, ps = "3 * n" }]\nrows = [{ at = [1, 1]',
        (
            "expected multiprocessors: `names` says what the key's numbers are called, got 'n' - at {path}"
            " $.entry[1].costs[0].ps"
        ),
    ),
    "a cost that is none": (
        "rows = [{ at = [1, 1]",
        'costs = [{ config = 0, ps = "3 *" }]\nrows = [{ at = [1, 1]',
        "expected an expression: expected",
    ),
    "a cost in words": (
        "rows = [{ at = [1, 1]",
        "costs = [{ config = 0, ps = \"'much'\" }]\nrows = [{ at = [1, 1]",
        "expected a number, in at most 256 operations, got \"'much'\" - at {path} $.entry[1].costs[0].ps",
    ),
    "a cost that is true": (
        "rows = [{ at = [1, 1]",
        'costs = [{ config = 0, ps = "multiprocessors == 3" }]\nrows = [{ at = [1, 1]',
        "expected a number, in at most 256 operations, got 'multiprocessors == 3'",
    ),
    "a cost of none": (
        "rows = [{ at = [1, 1]",
        'costs = [{ config = 0, ps = "none" }]\nrows = [{ at = [1, 1]',
        "expected a number, in at most 256 operations, got 'none'",
    ),
    "a cost that is too deep": (
        "rows = [{ at = [1, 1]",
        'costs = [{ config = 0, ps = "' + "3 + (" * 40 + "3" + ")" * 40 + '" }]\nrows = [{ at = [1, 1]',
        "expected a number, in at most 256 operations, got ",
    ),
    "a cost of another config": (
        "rows = [{ at = [1, 1]",
        'costs = [{ config = 2, ps = "3" }]\nrows = [{ at = [1, 1]',
        "expected a number from 0 to 1, got 2 - at {path} $.entry[1].costs[0].config",
    ),
    "a cost twice": (
        "rows = [{ at = [1, 1]",
        'costs = [{ config = 0, ps = "3" }, { config = 0, ps = "4" }]\nrows = [{ at = [1, 1]',
        "expected the cost of each config once, got [0, 0] - at {path} $.entry[1].costs",
    ),
    "a cost in other units": (
        "rows = [{ at = [1, 1]",
        'costs = [{ config = 0, us = "3" }]\nrows = [{ at = [1, 1]',
        "expected one of the keys config, ps, got 'us' - at {path} $.entry[1].costs[0].us",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_mistake_is_named_with_its_place(tmp_path: Path, case: str) -> None:
    old, new, message = CASES[case]
    assert old in TEXT
    with pytest.raises(TuningError) as caught:
        read(tmp_path, TEXT.replace(old, new))
    assert str(caught.value).startswith(message.format(path=tmp_path / "t.toml"))
    assert str(tmp_path / "t.toml") in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_tuned(tmp_path / "none.toml")


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "t.toml").write_bytes(b"schema = 1\xff")
    with pytest.raises(TuningError, match="expected TOML in UTF-8"):
        read_tuned(tmp_path / "t.toml")
