"""Which room may import which: the graph of `import` statements, and what importing really loads."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from nojit.aot.remote import version

from tests.spec.pages import rows

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("aot", "kernels", "runtime")
HEAVY = {"triton", "torch", "numpy"}
# what the runtime imports once it is asked for, and never before: by module, a package of an extra
ASKED_FOR = {
    # where NOJIT_MISS wants Triton's JIT
    ("nojit.runtime.fallback.jit_call", "torch"),
    ("nojit.runtime.fallback.jit_call", "triton"),
    ("nojit.runtime.observe.telemetry", "nvtx"),
    # programs that ask the stand-in for Triton for a device, or that time
    ("nojit.runtime.serve.standin.driver", "torch"),
    ("nojit.runtime.serve.standin.testing", "torch"),
    # where a program has imported them: what torch.compile generates
    ("nojit.runtime.recording.generated_kernels", "torch"),
    ("nojit.runtime.recording.inductor_hooks", "torch"),
    ("nojit.runtime.recording.inductor_hooks", "triton"),
    ("nojit.runtime.serve.inductor", "torch"),
    ("nojit.runtime.serve.inductor", "triton"),
    # where a program is served
    ("nojit.runtime.serve.driver", "torch"),
    ("nojit.runtime.serve.driver", "triton"),
    ("nojit.runtime.serve.forbid_compile", "triton"),
    ("nojit.runtime.serve.hosts", "triton"),
    ("nojit.runtime.serve.single_functions", "triton"),
    ("nojit.runtime.serve.patches", "triton"),
    # where a program is recorded
    ("nojit.runtime.recording.triton_hooks", "triton"),
    ("nojit.runtime.trust.envelope", "cryptography"),
    ("nojit.runtime.trust.trusted_keys", "cryptography"),
}
# the modules of a simulated GPU that import torch or Triton at once; `machine` loads them when a simulation starts
SIMULATION = {
    f"nojit.runtime.recording.fake.{name}"
    for name in (
        "addresses",
        "attention",
        "autocast",
        "collectives",
        "compiled",
        "dispatch",
        "fused_operators",
        "inference",
        "known_values",
        "launches",
        "streams",
        "tensors",
        "torch_cuda",
        "writes",
    )
}
# every package of aot, and of the runtime, may import the room's BASE, which imports none
BASE = "base"
# for each package of aot, the others that its modules import at once: a package imports only packages that stand above it
AOT = {
    "backends": set(),
    "manifest": {"backends"},
    "variants": {"manifest"},
    "plan": {"manifest", "variants"},
    "cache": set(),
    "compile": {"backends", "cache", "manifest", "plan", "variants"},
    "remote": {"backends", "cache", "compile", "plan", "variants"},
    "recorded_builds": {"manifest", "plan", "variants"},
    "draft": {"manifest", "plan", "recorded_builds"},
    "pack": {"manifest", "variants"},
    "provenance": {"compile"},
    "inspect": {"backends", "cache", "plan", "provenance", "variants"},
    "pipeline": {"backends", "cache", "manifest", "variants", "plan", "compile", "pack", "provenance", "inspect"},
    "signing": {"backends", "cache", "plan", "compile", "provenance", "inspect", "pipeline", "recorded_builds"},
    "wheel": {"backends", "manifest", "compile", "inspect", "signing"},
    "oci": {"manifest", "provenance", "inspect", "signing"},
    "tune": {"manifest", "inspect"},
    "bench": {"manifest", "inspect"},
    "cli": {
        "backends",
        "cache",
        "manifest",
        "variants",
        "plan",
        "compile",
        "remote",
        "recorded_builds",
        "draft",
        "provenance",
        "inspect",
        "signing",
        "pipeline",
        "wheel",
        "oci",
        "tune",
        "bench",
    },
}
# for each package of the runtime but BASE, the others that its modules import, at once or later
RUNTIME: dict[str, set[str]] = {
    "autostart": set(),
    "observe": set(),
    "types": set(),
    "table": {"types"},
    "expr": set(),
    "bundle": {"table"},
    "tuning": {"table", "expr"},
    "call": {"table", "types", "expr"},
    "explain": {"call", "table", "types", "expr", "observe"},
    "discovery": {"bundle"},
    "trust": {"bundle", "discovery"},
    "fallback": {"discovery", "explain", "call", "table", "types", "expr"},
    "first_call": {"call", "explain", "fallback", "tuning", "expr", "observe"},
    "recording": {"autostart", "bundle", "call", "types"},
    "serve": {"autostart", "observe", "bundle", "call", "first_call", "fallback", "recording"},
}
# for each folder of the engine, the others whose headers it includes: only folders before it
ENGINE: dict[str, set[str]] = {
    "base": set(),
    "json": {"base"},
    "bundle": {"base", "json"},
    "expr": {"base"},
    "table": {"base", "expr", "json"},
    "image": {"base"},
    "driver": {"base"},
    # of vendors: nothing else includes them
    "cuda": {"driver"},
    "hip": {"driver"},
    "select": {"base", "expr", "table"},
    "launch": {"base", "bundle", "driver", "expr", "image", "select", "table"},
    "api": {"base", "bundle", "driver", "launch", "select"},
}
# packages that `import nojit.runtime` and a first launch load; the others load when a program needs them
RUNTIME_AT_ONCE = {"bundle", "first_call", "observe", "table"}
REGISTRY = "nojit.aot.backends.registry"
# of aot and runtime, what imports Triton: the folder of the compiler, and backends, which nothing but their vendor imports
WITH_TRITON = "nojit.aot.compile.triton"
COMPILER = "nojit.aot.compile.triton.compiler"
BACKENDS = {"nojit.aot.backends.cuda.backend", "nojit.aot.backends.hip.backend"}
# kernels in Triton outside of kernels/: what the benchmarks launch
KERNEL_SOURCES = {"nojit.aot.bench.kernels"}


@dataclass(frozen=True)
class Import:
    """One imported name."""

    importer: str
    target: str
    lazy: bool
    """Whether it stands in a function, and so costs nothing until that runs."""


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(("nojit", *parts)).removesuffix(".__init__")


@cache
def modules() -> dict[str, Path]:
    return {module_name(path): path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))}


@cache
def imports() -> tuple[Import, ...]:
    return tuple(found for name, path in modules().items() for found in imports_of(name, path))


def imports_of(name: str, path: Path) -> Iterator[Import]:
    def visit(node: ast.AST, lazy: bool) -> Iterator[Import]:
        if isinstance(node, ast.Import):
            yield from (Import(name, alias.name, lazy) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = absolute(node, name, path)
            yield from (Import(name, submodule(base, alias.name), lazy) for alias in node.names)
        elif not is_type_checking(node):
            inside = lazy or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            for child in ast.iter_child_nodes(node):
                yield from visit(child, inside)

    yield from visit(ast.parse(path.read_text(encoding="utf-8")), lazy=False)


def absolute(node: ast.ImportFrom, name: str, path: Path) -> str:
    if not node.level:
        return node.module or ""
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    return ".".join(filter(None, [*package[: len(package) - node.level + 1], node.module]))


def submodule(base: str, name: str) -> str:
    """``from a import b`` imports the module ``a.b`` if there is one, else ``a``."""
    return f"{base}.{name}" if f"{base}.{name}" in modules() or base == "nojit" else base


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def top(target: str) -> str:
    return target.split(".", maxsplit=1)[0]


def within(target: str, package: str) -> bool:
    return target == package or target.startswith(f"{package}.")


def room(name: str) -> str:
    return name.split(".")[1]


@cache
def eager() -> dict[str, list[str]]:
    """List what each module imports at once."""
    found: dict[str, list[str]] = {}
    for each in imports():
        if not each.lazy:
            found.setdefault(each.importer, []).append(each.target)
    return found


@cache
def loaded_by(name: str) -> frozenset[str]:
    """List what importing a module loads at once: its eager imports, and theirs, and the packages they lie in."""
    seen: set[str] = set()
    waiting = [name]
    while waiting:
        current = waiting.pop()
        if current in seen:
            continue
        seen.add(current)
        waiting += eager().get(current, [])
        if current.startswith("nojit.") and current.count(".") > 1:
            waiting.append(current.rpartition(".")[0])
    return frozenset(seen)


def test_the_graph_is_not_empty():
    assert Import(COMPILER, "triton", lazy=False) in imports()
    assert Import("nojit.aot.pipeline.build", "nojit.runtime.bundle.file", lazy=False) in imports()
    assert {room(name) for name in modules()} == set(ROOMS)


def test_the_runtime_needs_the_standard_library_and_zstandard_alone():
    allowed = sys.stdlib_module_names | {"zstandard", "compression"}
    strangers = [
        found
        for found in imports()
        if room(found.importer) == "runtime"
        and top(found.target) not in allowed
        and not within(found.target, "nojit.runtime")
        and not (found.lazy and (found.importer, top(found.target)) in ASKED_FOR)
        and not (found.importer in SIMULATION and top(found.target) in {"torch", "triton"})
    ]
    assert strangers == []


def test_a_simulation_loads_its_modules_when_it_starts():
    assert {name for name in modules() if loaded_by(name) & SIMULATION} == SIMULATION


def test_of_aot_and_runtime_the_compiler_and_backends_alone_import_triton():
    importers = {
        found.importer
        for found in imports()
        if top(found.target) == "triton"
        and not (found.lazy and (found.importer, "triton") in ASKED_FOR)
        and found.importer not in SIMULATION
    }
    others = {name for name in importers if room(name) != "kernels" and not within(name, WITH_TRITON)}
    assert others == BACKENDS | KERNEL_SOURCES
    assert {found.importer for found in imports() if found.target in BACKENDS} == {
        f"{name.removesuffix('backend')}vendor" for name in BACKENDS
    }


def test_kernel_sources_are_found_through_manifests_alone():
    assert [found for found in imports() if found.target in KERNEL_SOURCES] == []


def test_the_registry_alone_knows_vendors():
    """All other code takes a vendor's facts from the interface."""
    folder = ROOT / "aot/backends"
    for package in (path.parent.name for path in folder.glob("*/__init__.py")):
        name = f"nojit.aot.backends.{package}"
        importers = {each.importer for each in imports() if within(each.target, name)}
        assert {each for each in importers if not within(each, name)} == {REGISTRY}
        spelled = [path for path in (ROOT / "aot").rglob("*.py") if name in path.read_text(encoding="utf-8")]
        assert {module_name(path) for path in spelled if folder / package not in path.parents} == {REGISTRY}


def test_the_url_of_a_shared_cache_alone_loads_fsspec():
    importers = {
        (found.importer, found.lazy) for found in imports() if top(found.target) in {"fsspec", "s3fs", "gcsfs"}
    }
    assert importers == {("nojit.aot.cache.store_urls", True)}


def test_a_request_to_a_registry_alone_loads_requests():
    importers = {(found.importer, found.lazy) for found in imports() if top(found.target) == "requests"}
    modules_of_oci = {("nojit.aot.oci.client", True), ("nojit.aot.oci.slow_answers", True)}
    assert importers == modules_of_oci | {("nojit.aot.cli.options.registries", True)}


def test_nothing_loads_the_compiler_at_once():
    # whoever needs it says so when it is needed: reading bundles must work where Triton is absent
    loading = {name for name in modules() if name.startswith("nojit.aot") and "triton" in map(top, loaded_by(name))}
    assert {name for name in loading if not within(name, WITH_TRITON)} == BACKENDS | KERNEL_SOURCES


def test_the_build_finds_kernels_through_manifests_alone():
    assert [
        found for found in imports() if room(found.importer) == "aot" and within(found.target, "nojit.kernels")
    ] == []


def aot_package(name: str) -> str:
    """Return the package of a module; empty for `nojit.aot` itself."""
    return (*name.split("."), "", "")[2]


def aot_edges() -> list[Import]:
    """List the imports between modules of aot, without those of modules that everything may import."""
    return [
        found
        for found in imports()
        if room(found.importer) == "aot"
        and found.target in modules()
        and within(found.target, "nojit.aot")
        and aot_package(found.target) != BASE
    ]


def test_packages_of_the_build_import_what_stands_above_them():
    assert {aot_package(name) for name in modules() if room(name) == "aot"} == {*AOT, BASE, ""}
    found: dict[str, set[str]] = {package: set() for package in AOT}
    for each in aot_edges():
        # commands import what they need when they run
        if not each.lazy or aot_package(each.importer) == "cli":
            found[aot_package(each.importer)].add(aot_package(each.target))
    assert {package: targets - {package} for package, targets in found.items()} == AOT
    order = list(AOT)
    for each in aot_edges():
        assert order.index(aot_package(each.target)) <= order.index(aot_package(each.importer)), each


def test_the_version_of_remote_workers_covers_what_they_import():
    assert {*version._PARTS} == {"remote"} | AOT["remote"]


def test_modules_of_the_build_have_names_of_their_own():
    """Backends of vendors have the same modules, and a command may be named as what it calls."""
    named: dict[str, list[str]] = {}
    for name in modules():
        beside = re.match(r"nojit\.aot\.(cli\.commands|backends\.\w+)\.", name)
        if within(name, "nojit.aot") and modules()[name].name != "__init__.py" and not beside:
            named.setdefault(name.rpartition(".")[2], []).append(name)
    several = {word for word, names in named.items() if len(names) > 1}
    # a compiler's option, and the options of all compilers
    assert several == {"options"}


def runtime_package(name: str) -> str:
    """Return the package of a module; empty for a module beside the packages."""
    parts = name.split(".")
    return parts[2] if len(parts) > 2 and parts[2] in {*RUNTIME, BASE} else ""


def test_packages_of_the_runtime_import_few_others():
    there = {path.parent.name for path in (ROOT / "runtime").glob("*/__init__.py")}
    assert there == {*RUNTIME, BASE}
    found: dict[str, set[str]] = {package: set() for package in ("", BASE, *RUNTIME)}
    for each in imports():
        if room(each.importer) == "runtime" and each.target in modules() and within(each.target, "nojit.runtime"):
            importer, target = runtime_package(each.importer), runtime_package(each.target)
            if target and target not in {importer, BASE} and not (importer == "" and each.lazy):
                found[importer].add(target)
    assert found.pop("") == RUNTIME_AT_ONCE
    assert found.pop(BASE) == set()
    assert found == RUNTIME
    order = list(RUNTIME)
    assert [
        (importer, each)
        for importer in order
        for each in RUNTIME[importer]
        if order.index(each) > order.index(importer)
    ] == []


def test_nothing_else_of_the_runtime_imports_recording_and_serving():
    features = {"autostart", "recording", "serve"}
    importers = {
        runtime_package(each.importer)
        for each in imports()
        if room(each.importer) == "runtime" and runtime_package(each.target) in features
    }
    assert importers <= features


def test_the_readme_of_the_runtime_names_every_folder_and_module_of_both_features():
    page = (ROOT / "runtime/README.md").read_text(encoding="utf-8")
    assert {*RUNTIME, BASE} <= {*re.findall(r"`(\w+)`", page)}
    folders = ("recording", "recording/fake", "serve")
    named = {*re.findall(r"`(\w+\.py)`", page)}
    assert {path.name for each in folders for path in (ROOT / "runtime" / each).glob("[!_]*.py")} <= named


def folders_included(root: Path, names: Collection[str]) -> dict[str, set[str]]:
    """List, for each folder of C, the other folders below the root of whose headers it includes some."""
    return {
        name: {
            included.partition("/")[0]
            for path in (root / name).glob("*.[ch]")
            for included in re.findall(r'^#include "(\w+/[\w.]+)"', path.read_text(encoding="utf-8"), re.MULTILINE)
            if (root / included).exists()
        }
        - {name}
        for name in names
    }


def test_folders_of_the_engine_include_those_before_them():
    folder = ROOT / "runtime/engine"
    assert {path.parent.name for path in folder.rglob("*.c")} == {*ENGINE}
    assert folders_included(folder, ENGINE) == ENGINE
    order = list(ENGINE)
    assert [(name, each) for name in order for each in ENGINE[name] if order.index(each) > order.index(name)] == []


def test_folders_of_the_binding_include_those_before_them():
    folder = ROOT / "runtime/binding"
    order = [name for name, _ in rows(folder / "README.md", "binding")]
    assert {path.parent.name for path in folder.rglob("*/*.c")} == {*order}
    found = folders_included(folder, order)
    assert found["kernel"] >= {"call", "launch", "plan"}
    assert [(name, each) for name in order for each in found[name] if order.index(each) > order.index(name)] == []
    assert folders_included(folder, ["."])["."] <= {"python"}


def test_no_header_of_the_binding_is_called_as_one_of_the_engine():
    engine, binding = ([path.name for path in (ROOT / "runtime" / room).rglob("*.h")] for room in ("engine", "binding"))
    assert not {*engine} & {*binding}
    assert len({*binding}) == len(binding)


def shown_imports(room: str, name: str) -> dict[str, set[str]]:
    """Return what the table of a room's page says that each folder imports; no folder may stand above one that it imports."""
    table = {folder: set(re.findall(r"\w+", imported)) for folder, _, imported in rows(ROOT / room / "README.md", name)}
    order = list(table)
    assert [(folder, each) for at, folder in enumerate(order) for each in table[folder] & {*order[at:]}] == []
    return table


def test_the_pages_of_the_rooms_show_these_imports():
    aot = shown_imports("aot", "folders")
    # `cli` says that it imports all but one, in words
    aot["cli"] = {*AOT} - {"cli", "pack"}
    assert aot == {BASE: set(), **AOT}
    assert shown_imports("runtime", "folders") == {BASE: set(), **RUNTIME}
    assert shown_imports("runtime/engine", "engine") == ENGINE


def test_what_everything_imports_imports_nothing():
    assert [found for found in aot_edges() if aot_package(found.importer) == BASE] == []


def test_imports_within_the_build_form_no_circle():
    """Imports in functions count, too: they hide a circle, and do not break it."""
    graph: dict[str, set[str]] = {}
    for found in aot_edges():
        graph.setdefault(found.importer, set()).add(found.target)
    TopologicalSorter(graph).prepare()


def packages_beside_each_other() -> list[str]:
    """List the packages with several packages in them."""
    inside: dict[str, set[str]] = {}
    for path in (each for room in ROOMS for each in (ROOT / room).rglob("*/__init__.py")):
        package = module_name(path)
        inside.setdefault(package.rpartition(".")[0], set()).add(package)
    return sorted(parent for parent, found in inside.items() if len(found) > 1)


@pytest.mark.parametrize("parent", packages_beside_each_other())
def test_packages_beside_each_other_form_no_circle(parent):
    depth = parent.count(".") + 2
    graph: dict[str, set[str]] = {}
    for found in imports():
        pair = [".".join(name.split(".")[:depth]) for name in (found.importer, found.target)]
        if (
            all(within(name, parent) and name in modules() and modules()[name].name == "__init__.py" for name in pair)
            and pair[0] != pair[1]
        ):
            graph.setdefault(pair[0], set()).add(pair[1])
    TopologicalSorter(graph).prepare()


def test_kernels_never_import_the_build():
    assert [
        found for found in imports() if room(found.importer) == "kernels" and within(found.target, "nojit.aot")
    ] == []


def test_kernels_are_launched_by_the_launches_of_their_family():
    # `calls` has the caller that launches for all of them
    modules_of_families = (path for path in (ROOT / "kernels").glob("*/**/*.py") if path.parent.name != "calls")
    families = [path for path in modules_of_families if not path.name.startswith("launch")]
    launching = re.compile(r"\b(caller|writer)\.launch\(|\blibrary\.get\(")
    assert [path for path in families if launching.search(path.read_text(encoding="utf-8"))] == []


def is_launch(node: ast.AST) -> bool:
    """Tell whether a node launches a kernel and passes arguments, other than the kernel's name, by position."""
    if not isinstance(node, ast.Call):
        return False
    called = ast.unparse(node.func)
    return (
        len(node.args) > 1
        if called in {"caller.launch", "writer.launch"}
        else bool(called.startswith("library.get(") and node.args)
    )


def test_kernels_are_launched_by_the_names_of_params():
    # generated kernels take operands, sizes and scalars in the order of the operator
    paths = [path for path in (ROOT / "kernels").rglob("launch*.py") if path.parent.name != "pointwise"]
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in paths
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if is_launch(node)
    ]
    assert len(paths) > 20
    assert found == []


def folder_of_kernels(name: str) -> str:
    """Return the folder of a module of kernels; empty for a module beside the folders."""
    parts = name.split(".")
    return parts[2] if len(parts) > 2 and (ROOT / "kernels" / parts[2]).is_dir() else ""


def edges_of_kernels() -> list[Import]:
    """List the imports between folders of kernels."""
    return [
        found
        for found in imports()
        if room(found.importer) == "kernels"
        and within(found.target, "nojit.kernels")
        and folder_of_kernels(found.target) not in {"", folder_of_kernels(found.importer)}
    ]


def test_families_import_shared_parts_and_few_others():
    page = ROOT / "kernels/README.md"
    table = {
        folder: set(re.findall(r"\w+", imported))
        for part in ("shared", "families")
        for folder, _, imported in rows(page, part)
    }
    shared = {folder for folder, _, _ in rows(page, "shared")}
    assert {*table} == {path.parent.name for path in (ROOT / "kernels").glob("*/__init__.py")}
    found: dict[str, set[str]] = {folder: set() for folder in table}
    for each in edges_of_kernels():
        importer, target = folder_of_kernels(each.importer), folder_of_kernels(each.target)
        if importer in shared or target not in shared:
            found[importer].add(target)
    assert found == table


# the backward pass of flex attention shares device functions with that of flash attention; sums of products and convolutions share the cost model of
# products
BEHIND_DOORS = {
    ("nojit.kernels.conv.launch_sums", "nojit.kernels.bmm.cost"),
    ("nojit.kernels.gated_mm.cost", "nojit.kernels.bmm.cost"),
    ("nojit.kernels.gated_mm.launch", "nojit.kernels.bmm.few_rows"),
    ("nojit.kernels.gated_mm.launch", "nojit.kernels.bmm.product"),
    ("nojit.kernels.gated_mm.launch", "nojit.kernels.pointwise.op"),
    ("nojit.kernels.gated_mm.op", "nojit.kernels.pointwise.op"),
    ("nojit.kernels.mm_plus_mm.cost", "nojit.kernels.bmm.cost"),
    ("nojit.kernels.mm_plus_mm.launch", "nojit.kernels.bmm.cost"),
    ("nojit.kernels.mm_plus_mm.launch_parts", "nojit.kernels.bmm.cost"),
    ("nojit.kernels.flex.kernel_sm90_bwd", "nojit.kernels.flash_attention.kernel_sm90_bwd"),
    ("nojit.kernels.compat.deepspeed.softmax", "nojit.kernels.block_sparse.checks"),
    ("nojit.kernels.compat.deepspeed.sparse_self_attention", "nojit.kernels.block_sparse.checks"),
}


def test_families_reach_others_through_their_operators_and_launches():
    shared = {folder for folder, _, _ in rows(ROOT / "kernels/README.md", "shared")}
    inside = {
        (each.importer, each.target)
        for each in edges_of_kernels()
        if folder_of_kernels(each.target) not in shared
        and each.target != f"nojit.kernels.{folder_of_kernels(each.target)}"
        and not each.target.rpartition(".")[2].startswith("launch")
    }
    assert inside == BEHIND_DOORS


def test_operators_load_no_triton():
    operators = [name for name in modules() if name.startswith("nojit.kernels.") and ".kernel" not in name[13:]]
    loading = {name: target for name in operators for target in loaded_by(name) if top(target) == "triton"}
    assert loading == {}
    eager = [
        found
        for found in imports()
        if found.importer in operators
        and not found.lazy
        and within(found.target, "nojit.kernels")
        and found.target.endswith(".kernel")
    ]
    assert eager == []


@pytest.mark.parametrize(
    "command",
    [
        "inspect",
        "verify",
        "diff",
        "extract",
        "doctor",
        "bench",
        "tune",
        "tune.run",
        "sign",
        "push",
        "pull",
        "save",
        "load",
    ],
)
def test_commands_that_read_bundles_load_neither_triton_nor_msgspec(command):
    name = f"nojit.aot.cli.commands.{command}"
    assert {top(target) for target in loaded_by(name)}.isdisjoint(HEAVY | {"msgspec"})


@pytest.mark.parametrize("command", ["inspect", "verify"])
def test_commands_that_check_bundles_need_no_packer(command):
    # on a Python that has zstd itself, the runtime brings no zstandard
    assert "nojit.aot.pack.bundle" not in loaded_by(f"nojit.aot.cli.commands.{command}")


def test_the_command_line_starts_without_them():
    assert {top(target) for target in loaded_by("nojit.aot.cli")}.isdisjoint(HEAVY | {"msgspec"})


def test_printing_and_exiting_are_the_command_lines():
    for name, path in modules().items():
        # a kernel's print is Triton's
        if within(name, "nojit.aot.cli") or name.endswith(".kernel"):
            continue
        text = path.read_text(encoding="utf-8")
        # which most have not is not looked for in their trees
        for node in ast.walk(ast.parse(text if re.search(r"\b(print|exit|quit)\b", text) else "")):
            if isinstance(node, ast.Call):
                assert ast.unparse(node.func) not in {"print", "sys.exit", "exit", "quit"}, f"{path}:{node.lineno}"


def test_the_names_that_installing_takes_away_are_never_imported():
    """`aot`, `runtime` and `kernels` exist at the top of a checkout only; `kernels` is another package's name."""
    folders = [ROOT / folder for folder in (*ROOMS, "tests", "benchmarks", "examples", "docs")]
    names = "|".join(ROOMS)
    spelled = re.compile(rf"\bfrom\s+({names})\b|(^|[;:])\s*import\s[^;\n]*\b({names})\b", re.MULTILINE)
    found = [
        f"{path}: {node.module if isinstance(node, ast.ImportFrom) else node.names[0].name}"
        for folder in folders
        for path in folder.rglob("*.py")
        # it loads its package with the other `kernels`
        if path != ROOT / "examples/hub_kernel/use.py"
        if spelled.search(text := path.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(text))
        if (isinstance(node, ast.ImportFrom) and not node.level and top(node.module or "") in ROOMS)
        or (isinstance(node, ast.Import) and any(top(alias.name) in ROOMS for alias in node.names))
    ]
    assert found == []


@cache
def names_of(module: str) -> frozenset[str] | None:
    """List what a module defines at its top; None if it makes names up when they are asked for."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(modules()[module].read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {alias.asname or top(alias.name) for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return None if "__getattr__" in found else frozenset(found)


IMPORTED = re.compile(r"^ *from (nojit[\w.]*) import (\([^)]*\)|[\w, ]*)", re.MULTILINE)


@pytest.mark.parametrize("folder", [*ROOMS, "tests", "benchmarks", "examples", "docs"])
def test_every_name_imported_from_nojit_exists(folder):
    """In functions too, which may run on a GPU alone."""
    missing = [
        f"{path}: {module}.{name}"
        for path in (ROOT / folder).rglob("*.py")
        for module, given in IMPORTED.findall(path.read_text(encoding="utf-8"))
        if module in modules() and (names := names_of(module)) is not None
        for name in re.findall(r"(?<!as )\b(?!as\b)\w+", re.sub("#.*", "", given))
        if name not in names and f"{module}.{name}" not in {*modules(), "nojit.runtime._core"}
    ]
    assert missing == []


# in any text: a string that some code imports, an entry point, a comment, a page; `:` before the name of an object
SPELLED = re.compile(r"(?<![\w./-])nojit\.(?:aot|kernels|runtime)(?:\.\w+)*(?::\w+)?")
# as C spells a name of a module
SPELLED_IN_C = re.compile(r'"(nojit\.[\w.]+)", "(\w+)"')
ENDINGS = {".py", ".pyi", ".c", ".h", ".toml", ".md", ".pth"}


def is_there(name: str) -> bool:
    """Return whether a dotted name is a module's, or a module's and that of an object in it."""
    parts = re.split("[.:]", name)
    modules_within = [".".join(parts[:count]) for count in range(2, len(parts) + 1)]
    (home, *_) = [each for each in reversed(modules_within) if each in modules()] or [""]
    rest = parts[home.count(".") + 1 :]
    if not home or not rest:
        return bool(home) or name in {f"nojit.{room}" for room in ROOMS}
    names = names_of(home)
    # a package that makes names up when they are asked for spells them
    spelled = names if names is not None else re.findall(r'"(\w+)"', modules()[home].read_text(encoding="utf-8"))
    return rest[0] in spelled or (home == "nojit.runtime" and rest[0] == "_core")


def files_that_spell() -> list[Path]:
    """List the files that may name a module in a text."""
    folders = (
        ROOT / folder for folder in (*ROOMS, "manifests", "package", "autoserve", "examples", "benchmarks", "docs")
    )
    inside = (path for folder in folders for path in folder.rglob("*") if path.suffix in ENDINGS)
    return [*inside, *(path for path in ROOT.glob("*") if path.suffix in ENDINGS)]


def test_every_name_of_a_module_in_a_text_is_one():
    """Strings that code imports, entry points, comments and pages: no tool sees it when their module moves."""
    texts = {path: path.read_text(encoding="utf-8") for path in files_that_spell()}
    spelled = {(path, name) for path, text in texts.items() for name in SPELLED.findall(text)}
    spelled |= {(path, f"{home}:{name}") for path, text in texts.items() for home, name in SPELLED_IN_C.findall(text)}
    assert {"nojit.kernels.manifest_kernels", "nojit.runtime.values:DType"} <= {name for _, name in spelled}
    assert [(str(path), name) for path, name in sorted(spelled) if not is_there(name)] == []


MEASURE = """
import json, sys, typing

def calls(module):
    seen = [0]
    sys.setprofile(lambda frame, event, what: seen.__setitem__(0, seen[0] + event.endswith("call")))
    __import__(module)
    sys.setprofile(None)
    return seen[0]

before = set(sys.modules)
ours = calls("nojit.runtime")
modules = sorted(set(sys.modules) - before)
print(json.dumps({"modules": modules, "calls": ours, "argparse": calls("argparse")}))
"""


def test_importing_the_runtime_is_light():
    """It loads no module but itself until somebody asks for a name, and calls less than importing `argparse` does."""
    found = json.loads(subprocess.check_output([sys.executable, "-c", MEASURE], cwd=ROOT))
    assert found["modules"] == ["nojit", "nojit.runtime"]
    assert found["calls"] < found["argparse"]
