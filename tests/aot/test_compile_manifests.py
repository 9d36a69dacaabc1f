"""Every kernel of the project compiles, once per choice of types, with the Triton that is installed.

Choices that exist for several archs take turns: the first compiles for sm_80, the second for sm_90. With
``NOJIT_TEST_ARCHS=all``, as in CI with the newest Triton, each compiles for every arch. Samples whose loops are recorded always
compile.

A sample that compiled is compiled again only if something changed that it is made of: its source, the toolchain, its
options, nojit's code or what is tested of it; without `.pytest_cache` all are. Run with the oldest supported Triton too,
in an environment of its own: imports pytest, nojit.aot and the standard library alone. What the loops of warp-specialized kernels carry is
recorded, and the same with each: see `tests.support.gluon_code`.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from nojit.aot.compile.toolchain.digests import file_digest, tree_digest
from nojit.aot.manifest.matrix import axes_of
from nojit.aot.manifest.reader import load_manifest
from nojit.aot.manifest.spec import KernelSpec
from nojit.aot.plan.function_facts import SourcePlace
from nojit.aot.plan.variant_fit import fit_variant
from nojit.aot.variants.expand import expand_kernel
from nojit.aot.variants.tuning_space import expand_space
from nojit.aot.variants.variant import Variant

from tests.support.gluon_code import RECORDED, carried, compile_gluon, overwritten_barriers

ROOT = Path(__file__).resolve().parents[2]
MANIFESTS = ROOT / "manifests"
ARCHS = ("sm_80", "sm_90")
ALL_ARCHS = os.environ.get("NOJIT_TEST_ARCHS") == "all"

pytestmark = pytest.mark.triton


@dataclass(frozen=True, slots=True)
class Sample:
    """A variant to compile."""

    name: str
    place: SourcePlace
    spec: KernelSpec
    first: Variant | None = None
    """Of an arch and a choice of types; None for one to tune."""

    def variant(self) -> Variant:
        """Return it. Spaces are long, so they are listed here, where one process does so, and not where tests are collected."""
        # the end of a space is far from the configs that are written by hand
        return self.first or expand_space(self.spec, "sm_90", self.place.where).variants[-1]


def samples() -> Iterator[Sample]:
    """Take of each kernel and choice of type axes the first variant, which has every hint; and one to tune."""
    for path in sorted(MANIFESTS.glob("*.toml")):
        for spec in load_manifest(path).kernel:
            place = SourcePlace(spec.source, path.parent, f"{path.name} kernel {spec.name}")
            choices: dict[str, list[Sample]] = {}
            for arch in ARCHS:
                for types, variant in first_variants(spec, arch, place.where):
                    sample = Sample(f"{spec.name}-{arch}-{types}".removesuffix("-"), place, spec, variant)
                    choices.setdefault(types, []).append(sample)
            for turn, found in enumerate(choices.values()):
                whose_turn = found[turn % len(found)]
                yield from (one for one in found if ALL_ARCHS or one is whose_turn or one.name in LOOPS)
            if spec.tuning is not None and spec.tuning.space:
                yield Sample(f"{spec.name}-space", place, spec)


def first_variants(spec: KernelSpec, arch: str, where: str) -> Iterator[tuple[str, Variant]]:
    """Take the first variant of each choice of type axes, with that choice's name."""
    type_axes = [axis.name for axis in axes_of(spec, where) if axis.is_type]
    seen = set()
    for variant in expand_kernel(spec, arch, where).variants:
        types = "-".join(str(dict(variant.axes)[name]) for name in type_axes)
        if types not in seen:
            seen.add(types)
            yield types, variant


LOOPS = json.loads(RECORDED.read_text())
SAMPLES = tuple(samples())


def test_every_manifest_is_here():
    assert {sample.place.where.split()[0] for sample in SAMPLES} == {path.name for path in MANIFESTS.glob("*.toml")}
    assert set(LOOPS) <= {sample.name for sample in SAMPLES}


@pytest.fixture(scope="session")
def code() -> str:
    """Digest all that shapes a compiled sample, and is no part of its key."""
    folders = [tree_digest([str(ROOT / name)]) for name in ("aot", "runtime", "tests/support")]
    return f"{sys.version} {folders} {file_digest(__file__)} {RECORDED.read_text()}"


@pytest.fixture(scope="session")
def compiled_before(pytestconfig: pytest.Config) -> Path | None:
    """A folder with a file for each sample that compiled, which holds what of; None where pytest keeps nothing."""
    cache = getattr(pytestconfig, "cache", None)
    return cache.mkdir("compiled") if cache else None


@pytest.mark.parametrize("sample", SAMPLES, ids=[sample.name for sample in SAMPLES])
def test_compiles(sample, code, compiled_before):
    # here, so that collecting the tests needs no Triton
    from nojit.aot.compile.triton.compiler import describe, variant_key

    place = sample.place
    source = describe(place)
    variant = fit_variant(sample.variant(), source, place.where)
    made_of = hashlib.sha256(f"{variant_key(variant, source, place)} {code}".encode()).hexdigest()
    known = compiled_before and compiled_before / sample.name
    if known and known.exists() and known.read_text() == made_of:
        return
    compiled, stages = compile_gluon(variant, place)
    assert compiled.registers > 0
    assert compiled.launch.symbol.encode() in compiled.image
    counts = carried(stages["ttgir"]) if stages else None
    assert counts == LOOPS.get(sample.name), f"python -m tests.support.gluon_code records them anew; {place.spelling}"
    assert not stages or not overwritten_barriers(stages["llir"]), "allocate no barrier that nobody waits for"
    if known:
        known.write_text(made_of)
