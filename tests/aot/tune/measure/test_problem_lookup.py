"""Problems are found by family, module and file, and what is not there is named."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from nojit.aot.tune.measure.problem_lookup import find_problems, of_kernels
from nojit.runtime.errors import NojitError


def test_a_family_and_its_module_are_one() -> None:
    by_family = find_problems(["flash_attention"])
    assert find_problems(["nojit.kernels.flash_attention.problems:tune", "flash_attention"]) == by_family
    assert {one.listed.use for one in by_family} == {"tune"}
    assert by_family[0].roles["tunables"] == ("BLOCK_M", "BLOCK_N")


def test_a_use_is_another_set() -> None:
    held_out = find_problems(["flash_attention:held_out"])
    assert {one.listed.use for one in held_out} == {"held_out"}
    assert len(find_problems(["flash_attention", "flash_attention:held_out"])) == len(held_out) + len(
        find_problems(["flash_attention"])
    )


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    source = """
        from types import SimpleNamespace

        def problems(use):
            return [SimpleNamespace(name="a", kernel="add", shape_class="c", dtype="fp32", sizes={"n": 3})]
    """
    path.write_text(textwrap.dedent(source), encoding="utf-8")
    (found,) = find_problems([f"{path}:bars"])
    assert (found.listed.kernel, found.listed.use, found.listed.sizes, found.roles) == ("add", "bars", {"n": 3}, {})
    assert found.listed.weight == 1.0


@pytest.mark.parametrize("weight", ["2", "0.5", "0", "-1.0", "float('nan')", "float('inf')", "True", "'4'"])
def test_weights_are_numbers_above_0(tmp_path: Path, weight: str) -> None:
    path = tmp_path / "mine.py"
    facts = f"name='a', kernel='add', shape_class='c', dtype='fp32', sizes={{}}, weight={weight}"
    path.write_text(
        f"from types import SimpleNamespace\ndef problems(use):\n    return [SimpleNamespace({facts})]\n",
        encoding="utf-8",
    )
    if weight in {"2", "0.5"}:
        assert find_problems([str(path)])[0].listed.weight == float(weight)
        return
    with pytest.raises(NojitError, match=r"expected a weight above 0, got .* - at problem 'a' of kernel add"):
        find_problems([str(path)])


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("flash_atention", "expected a family of kernels, a module or a file of problems (*.py), got 'flash_atention'"),
        ("nojit.kernels.nothing.problems", "no module nojit.kernels.nothing"),
        ("json", "no module nojit.kernels.json"),
        ("./problems.txt", "(*.py), got './problems.txt' - at --problems"),
        ("", "got '' - at --problems"),
        ("os.path", "expected a module that defines problems(use)"),
        (
            "flash_attention:tuning",
            "use: expected tune, held_out, fresh or bars, got 'tuning' - at flash_attention:tuning",
        ),
        ("nowhere.py", "expected a Python file that defines problems(use)"),
    ],
)
def test_what_is_not_there(name: str, words: str) -> None:
    with pytest.raises(NojitError) as error:
        find_problems([name])
    assert words in str(error.value)


def test_problems_of_some_kernels() -> None:
    found = find_problems(["pointwise"])
    assert of_kernels(found, ()) == list(found)
    assert {one.listed.kernel for one in of_kernels(found, ["silu", "gelu"])} == {"silu", "gelu"}
    with pytest.raises(NojitError, match=r"got 'gelo'; did you mean 'gelu'\? - at --kernel"):
        of_kernels(found, ["silu", "gelo"])
