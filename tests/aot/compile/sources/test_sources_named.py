"""How manifests name kernel functions: by modules and files, in packages or not, and by expressions."""

from __future__ import annotations

import re
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.aot.cli.conftest import Run, run
from tests.aot.projects import KERNEL, Built, Project, entry

pytestmark = pytest.mark.triton

Make = Callable[[], Project]
Write = Callable[..., Path]
__all__ = ["run"]

# kernels that no name of the module reaches, each of which stores another number
NAMED = """
import types

import triton
import triton.language as tl


def make(number, *, name="k"):
    number = tl.constexpr(number)

    @triton.jit
    def k(out_ptr, V: tl.constexpr):
        tl.store(out_ptr, V + number)

    return k


def outer(launched):
    @triton.jit
    def inner(out_ptr, V: tl.constexpr):
        tl.store(out_ptr, V + 5.125)

    @triton.jit
    def needs(out_ptr, V: tl.constexpr):
        tl.store(out_ptr, V + launched)

    def between():
        @triton.jit(do_not_specialize=["out_ptr"])
        def innermost(out_ptr, V: tl.constexpr):
            tl.store(out_ptr, V + 6.125)

        return innermost

    return between


class Kernels:
    @triton.jit
    def member(out_ptr, V: tl.constexpr):
        tl.store(out_ptr, V + 7.125)


@triton.jit
def add_eight(x):
    return x + 8.125


def over(function):
    @triton.jit
    def k(out_ptr, V: tl.constexpr):
        tl.store(out_ptr, function(V))

    return k


kernels = [make(1.125), make(2.125)]
by_name = {"three": make(3.125), ("a", 1): make(4.125)}
space = types.SimpleNamespace(kernels=kernels)
"""
# names, and the number that the kernel adds
NAMES = {
    "named.py:kernels[0]": 1.125,
    "named.py:kernels[-1]": 2.125,
    "named.py:space.kernels[1]": 2.125,
    'named.py:by_name["three"]': 3.125,
    'named.py:by_name["a", 1]': 4.125,
    "named.py:outer.<locals>.inner": 5.125,
    "named.py:outer.<locals>.between.<locals>.innermost": 6.125,
    "named.py:Kernels.member": 7.125,
    "named.py:over(add_eight)": 8.125,
    "named.py:make(9.125)": 9.125,
    'named.py:make(number=1.0125e1, name="with: colon")': 10.125,
    "named.py:make(-11.125)": -11.125,
}


def images_of(built: Built) -> dict[str, list[bytes]]:
    """The images of a build that went well."""
    assert built.code == 0, built.stderr
    return built.images()


def test_expressions_name_what_no_name_reaches(project: Make) -> None:
    entries = [entry(f"k{number}", name) for number, name in enumerate(NAMES)]
    images = images_of(project().write(named_py=NAMED).build(*entries))
    for number, (name, stored) in enumerate(NAMES.items()):
        (image,) = images[f"k{number}"]
        assert struct.pack("<f", stored + 1) in image, name
    assert b"\0inner\0" in images["k5"][0]


def test_two_builds_of_an_expression_give_the_same_bundle_wherever_it_lies(project: Make, tmp_path: Path) -> None:
    entries = [entry("a", "named.py:make(9.0)"), entry("b", "named.py:outer.<locals>.inner")]
    bundles = []
    for made in (project(), Project(tmp_path / "another folder" / "of another length")):
        built = made.write(named_py=NAMED).build(*entries)
        assert built.code == 0, built.stderr
        bundles.append((built.out / "demo-1.0-sm_80.nojit").read_bytes())
    assert bundles[0] == bundles[1]


def test_functions_of_constexprs_are_named_so_too(project: Make) -> None:
    kernel = KERNEL.replace("+ V)", "+ V(1))")
    functions = "import triton\nimport triton.language as tl\n\n\ndef make(by):\n    by = tl.constexpr(by)\n\n    @triton.jit\n    def f(x):\n        return x + by\n    return f\n\n\nfs = {'two': make(2)}\n"
    made = project().write(a_py=kernel, f_py=functions, two_py=functions + "\n\ntwo = make(2)\n")
    names = ("f.py:make(2)", 'f.py:fs["two"]', "two.py:two")
    entries = [entry(f"k{n}", "a.py:k").replace("V = 1", f"V = {{ function = '{name}' }}") for n, name in enumerate(names)]  # fmt: skip
    images = images_of(made.build(*entries))
    assert images["k0"] == images["k1"] == images["k2"]


# names that reach nothing, and what is said of them
UNREACHED = {
    "named.py:kernals[0]": "expected a function of named.py, got 'kernals'",
    "named.py:kernels[2]": "expected an item of kernels, got 2; it has 2 items",
    'named.py:by_name["tree"]': "expected an item of by_name, got 'tree'; did you mean 'three'?",
    "named.py:by_name[7]": "expected an item of by_name, got 7; it has 'three', ('a', 1)",
    "named.py:space.kernel": "expected an attribute of space, got 'kernel'; did you mean 'kernels'?",
    "named.py:make()": "expected make() to return a function, got TypeError: make() missing 1 required positional argument: 'number'",
    "named.py:make": "expected a @triton.jit function, got function named.py:make",
    "named.py:outer.<locals>.iner": "expected a function that outer defines, got 'iner'; did you mean 'inner'?",
    "named.py:outer.<locals>.needs": "expected needs to use no variables of outer; name a call that returns the function instead, got launched",
    "named.py:space.<locals>.k": "expected space to be a function, got SimpleNamespace",
}  # fmt: skip


def test_what_a_name_does_not_reach_is_told_with_what_is_near(project: Make) -> None:
    entries = [entry(f"k{number}", name) for number, name in enumerate(UNREACHED)]
    built = project().write(named_py=NAMED).build(*entries, words=("--dry-run",))
    assert built.code == 1
    for number, message in enumerate(UNREACHED.values()):
        assert re.search(f"{re.escape(message)} - at .*kernel.{number}..source", built.stderr), message


# what Python evaluates, and a manifest does not
REFUSED = [
    "a.py:__import__('os')",
    "a.py:k.__globals__",
    "a.py:k + k",
    "a.py:(lambda: k)()",
    "a.py:[k for k in ks][0]",
    "a.py:make(*args)",
    "a.py:make(**{})",
    "a.py:make(1 if True else 2)",
    "a.py:ks[i]",
    "a.py:ks[f()]",
    "a.py:ks[0:1]",
    "a.py:k; import os",
    "a.py:k if k else k",
    "a.py:(k := 1)",
    "a.py:f'{k}'",
    "a.py:k.",
    "a.py:",
    "a.py",
    ":k",
    "a.py: k",
    "../kernels:k",
    "/etc/passwd:k",
    ".a:k",
    "a..b:k",
    "a.py:k\\nk",
    f"a.py:{'(' * 500}k",
]


@pytest.mark.parametrize("what", ["source", "function"])
def test_nothing_but_names_items_and_calls_is_evaluated(run: Run, write_manifest: Write, what: str) -> None:
    entries = []
    for number, name in enumerate(REFUSED):
        text = f'"""{name}"""'
        whole = entry(f"k{number}", "a.py:k")
        whole = (
            whole.replace("'a.py:k'", text)
            if what == "source"
            else whole.replace("V = 1", f"V = {{ function = {text} }}")
        )
        entries.append(whole)
    manifest = write_manifest("".join(entries))
    (manifest.parent / "a.py").write_text("raise SystemExit('imported')\n", encoding="utf-8")
    result = run("build", manifest, "--dry-run")
    assert result.exit_code == 1
    for number in range(len(REFUSED)):
        place = "source" if what == "source" else r"configs.0..V.*"
        expected = (
            rf"expected package\.module:function or path/to/file\.py:function, where .* - at .*kernel.{number}..{place}"
        )
        assert re.search(expected, result.stderr), REFUSED[number]
    assert "imported" not in result.stderr


PACKAGE = {
    "mypkg/__init__.py": "ORDER = ['package']\n",
    "mypkg/deep/__init__.py": "",
    "mypkg/helpers.py": "import triton\n\n\n@triton.jit(noinline=True)\ndef help(x):\n    return x * 2 + 1\n",
    "mypkg/deep/kernels.py": (
        "from .. import ORDER\nfrom ..helpers import help\n"
        + KERNEL.replace("+ V)", "+ help(V))")
        + "\nassert __name__ == 'mypkg.deep.kernels' and ORDER == ['package']\n"
    ),
}


def test_a_file_of_a_package_is_imported_as_its_module(project: Make, tmp_path: Path) -> None:
    """By its path, by its name from the manifest's folder, and by its name from the folder of the build."""
    made, elsewhere, cache = project().write(PACKAGE), project(), tmp_path / "cache"
    by_path, by_name = entry("a", "mypkg/deep/kernels.py:k"), entry("a", "mypkg.deep.kernels:k")
    first = made.build(by_path, cache=cache)
    assert str(tmp_path).encode() not in images_of(first)["a"][0]
    # each has the same key, which covers the names of modules: functions that stay functions have symbols of them
    others = [made.build(by_name, cache=cache), elsewhere.build(by_name, cache=cache, cwd=made.folder)]
    shutil.move(made.folder / "mypkg", tmp_path / "mypkg")
    moved = Project(tmp_path / "below")
    others.append(moved.build(by_path.replace("mypkg/", "../mypkg/"), cache=cache))
    for built in others:
        assert images_of(built) == images_of(first)
        assert "1 variant (1 cached)" in built.stdout or "up to date" in built.stdout


def test_a_module_of_the_project_stands_before_an_installed_one_and_behind_the_standard_library(
    project: Make, tmp_path: Path
) -> None:
    # the manifest's folder stands before that of the build
    made = project().write(mine_py=KERNEL, colorsys_py="raise ImportError('not ours')\n", click_py=KERNEL)
    made.write(asks_py=f"import colorsys\n{KERNEL}")
    other = project().write(mine_py="raise ImportError('of the build')\n")
    entries = entry("a", "mine:k"), entry("b", "click:k"), entry("c", "asks:k")
    built = made.build(*entries, cwd=other.folder, words=("--dry-run",))
    assert built.code == 0, built.stderr


def test_a_package_that_is_hidden_by_another_of_its_name_is_told(project: Make) -> None:
    made = project().write({"nojit/__init__.py": "", "nojit/kernels.py": KERNEL})
    built = made.build(entry("a", "nojit/kernels.py:k"), words=("--dry-run",))
    assert built.code == 1
    assert (
        f"expected {made.folder}/nojit/kernels.py to be the module nojit.kernels; rename its package, because another one has this name, got "
        in built.stderr
    )


def test_a_module_that_is_not_found_says_where_it_was_looked_for(project: Make) -> None:
    made = project()
    built = made.build(entry("a", "mypkg.kernels:k"), words=("--dry-run",))
    assert built.code == 1
    said = f"No module named 'mypkg' in {made.folder}, {made.folder.parent} or installed packages"
    assert said in built.stderr
