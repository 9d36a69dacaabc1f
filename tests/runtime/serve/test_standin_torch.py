"""torch finds in the stand-in every name of Triton that it imports, and takes the stand-in for Triton."""

from __future__ import annotations

import ast
import importlib.util
import json
from functools import cache
from pathlib import Path

import pytest

from tests.runtime.serve.conftest import run

pytest.importorskip("torch")
pytest.importorskip("triton")
pytestmark = pytest.mark.slow
TORCH = Path(importlib.util.find_spec("torch").submodule_search_locations[0])
# the modules that launch and compile kernels, then all others that name Triton
CORE = [
    "_inductor/runtime/triton_compat.py",
    "utils/_triton.py",
    *(f"_inductor/runtime/{path.name}" for path in sorted((TORCH / "_inductor/runtime").glob("*.py"))),
]


def imported(path: Path) -> set[tuple[str, str]]:
    """List what a file imports of Triton: modules, and names in them; the file's text is enough."""
    text = path.read_text(encoding="utf-8", errors="ignore")
    found = set()
    for node in ast.walk(ast.parse(text)) if "triton" in text else ():
        if isinstance(node, ast.Import):
            found |= {(alias.name, "") for alias in node.names if alias.name.split(".")[0] == "triton"}
        elif isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").split(".")[0] == "triton":
            found |= {(str(node.module), alias.name) for alias in node.names}
        elif isinstance(node, ast.Attribute):
            dotted = ast.unparse(node)
            if dotted.startswith(("triton.", "tl.")) and all(part.isidentifier() for part in dotted.split(".")):
                found.add((dotted, "."))
    return found


@cache
def asked() -> dict[str, list[tuple[str, str]]]:
    files = {
        path
        for folder in (
            "_inductor",
            "_dynamo",
            "_higher_order_ops",
            "_library",
            "_functorch",
            "utils",
            "_utils_internal.py",
            "cuda",
            "profiler",
            "sparse",
            "export",
            "_export",
            "distributed",
            "nn/attention",
        )
        for path in ([TORCH / folder] if folder.endswith(".py") else (TORCH / folder).rglob("*.py"))
    }
    return {str(path.relative_to(TORCH)): sorted(found) for path in sorted(files) if (found := imported(path))}


SCRIPT = """
import importlib, json
import triton, triton.language as tl
def exists(module, name):
    try:
        if name == ".":
            # an expression: `triton.runtime.driver.active` needs a GPU after its first parts
            value = {"triton": triton, "tl": tl}[module.split(".")[0]]
            for part in module.split(".")[1:3]:
                value = getattr(value, part)
        else:
            value = importlib.import_module(module)
            if name and name != "*":
                try:
                    getattr(value, name)
                except AttributeError:
                    importlib.import_module(f"{module}.{name}")
    except (ImportError, AttributeError):
        return False
    except Exception:
        return True
    return True
print(json.dumps([exists(module, name) for module, name in json.loads(NAMES)]))
"""


@cache
def existing(standin: bool) -> dict[tuple[str, str], bool]:
    names = sorted({each for found in asked().values() for each in found})
    script = f"NAMES = {json.dumps(json.dumps(names))}\n{SCRIPT}"
    told = json.loads(run(script, hidden=standin, installed=standin).splitlines()[-1])
    return dict(zip(names, told, strict=True))


def unlike(standin: bool) -> list[tuple[str, tuple[str, str]]]:
    """List the names that exist with the stand-in or with Triton, and not with the other."""
    return [
        (file, each)
        for file, found in asked().items()
        for each in found
        if existing(standin)[each] and not existing(not standin)[each]
    ]


def test_torch_imports_names_of_triton():
    assert ("triton.runtime.jit", "JITFunction") in asked()["_inductor/runtime/triton_compat.py"]
    assert ("triton.compiler.compiler", "make_backend") in asked()["utils/_triton.py"]
    assert len({each for found in asked().values() for each in found}) > 100


@pytest.mark.parametrize("file", [each for each in CORE if each in asked()])
def test_every_name_that_a_runtime_module_of_inductor_imports_exists(file):
    missing = [each for each in asked()[file] if existing(False)[each] and not existing(True)[each]]
    assert missing == []


def test_every_name_that_torch_imports_exists_where_triton_has_it():
    # torch compiles a kernel there, to find the arguments that it writes; it takes all of them where that fails
    assert [each for each in unlike(standin=False) if not each[1][0].startswith("triton._C")] == []


def test_no_name_exists_that_triton_lacks():
    """Torch asks for names of older Tritons first: one too many would send it along their path."""
    # the stand-in has each module as an attribute; Triton has it once it is imported
    assert [each for each in unlike(standin=True) if each[1] != ("tl.extra.libdevice", ".")] == []


def test_torch_takes_the_stand_in_for_triton(without_triton):
    told = without_triton(
        "import json, torch\nfrom torch.utils import _triton\nimport torch._inductor.runtime.triton_heuristics\n"
        "from torch._inductor.runtime import triton_compat as compat\n"
        "missing = [name for name in compat.__all__ if getattr(compat, name, None) is None]\n"
        "import torch._inductor.codegen.triton, torch._inductor.codegen.wrapper, torch._inductor.select_algorithm, torch._inductor.lowering\n"
        "import torch._higher_order_ops.triton_kernel_wrap, torch._library.triton\n"
        "print(json.dumps([_triton.has_triton_package(), _triton.get_triton_version(), compat.HAS_TRITON, missing, "
        "compat.builtins_use_semantic_kwarg, compat.triton.__version__, compat.triton_key(), _triton.has_triton()]))"
    )
    assert told == [True, [3, 9], True, [], True, "3.9.0+nojit", "3.9.0+nojit", False]


def test_torch_that_has_looked_for_triton_looks_again(without_triton):
    told = without_triton(
        "import json, torch\nfrom torch.utils import _triton\nbefore = _triton.has_triton_package()\n"
        "from nojit.runtime.serve import standin\nstandin.install()\n"
        "print(json.dumps([before, _triton.has_triton_package()]))",
        installed=False,
    )
    assert told == [False, True]


def test_inductor_that_has_done_without_triton_is_a_warning(without_triton):
    told = without_triton(
        "import json, torch, warnings\nimport torch._inductor.runtime.triton_compat as compat\n"
        "from nojit.runtime.serve import standin\n"
        "with warnings.catch_warnings(record=True) as caught:\n    warnings.simplefilter('always')\n    standin.install()\n"
        "print(json.dumps([compat.HAS_TRITON, [str(each.message) for each in caught]]))",
        installed=False,
    )
    assert told[0] is False
    assert len(told[1]) == 1
    assert "before the stand-in for Triton was installed" in told[1][0]


PROGRAM = """
import torch, triton, triton.language as tl
from torch.library import triton_op, wrap_triton

@triton.autotune([triton.Config({'BLOCK': n}) for n in (64, 128)], key=['n'])
@triton.jit
def add(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < n) + 1, mask=at < n)

@triton_op('program::add', mutates_args={})
def add_one(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    n = x.numel()
    wrap_triton(add)[lambda meta: (triton.cdiv(n, meta['BLOCK']),)](x, out, n)
    return out
"""


def test_an_operator_of_torch_launches_through_the_server(tmp_path, without_triton):
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    told = without_triton(
        "import json, torch, program\nlog = []\n"
        "def launch(function, grid, args, kwargs, warmup):\n"
        "    args[1].copy_(args[0] + 1)\n    log.append([function.__name__, grid(kwargs), args[2], kwargs['BLOCK'], warmup])\n"
        "standin.set_callbacks(launch, lambda autotuner, key, configs, nargs: configs[1])\n"
        "x = torch.zeros(1000)\n"
        "found = program.add_one(x).sum().item()\n"
        "meta = program.add_one(torch.zeros(10, device='meta')).shape\n"
        "eager = torch.compile(program.add_one, backend='eager', fullgraph=True)(x).sum().item()\n"
        "from torch._subclasses import FakeTensorMode\n"
        "with FakeTensorMode():\n    fake = program.add_one(torch.zeros(10)).shape\n"
        "print(json.dumps([found, log, [*meta], eager, [*fake]]))",
        paths=(tmp_path,),
    )
    assert told[0] == 1000
    assert told[1][0] == ["add", [8], 1000, 128, False]
    assert told[2] == [10]
    assert told[3:] == [1000, [10]]
