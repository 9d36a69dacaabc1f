"""The kernels of tests/gpu/launch, one per way in which a launch can differ: what each compiles to.

That a layout is right is what compiling checks itself, against the image. Run with the oldest supported Triton too:
imports pytest, nojit.aot and what that needs alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from nojit.aot.manifest.reader import load_manifest
from nojit.aot.plan.function_facts import SourcePlace
from nojit.aot.plan.variant_fit import fit_variant
from nojit.aot.variants.expand import expand_kernel
from nojit.aot.variants.variant import Variant
from nojit.runtime.table.parts import Launch, TensorMap

MANIFEST = Path(__file__).resolve().parents[1] / "gpu/launch/launch.toml"
SPECS = {spec.name: spec for spec in load_manifest(MANIFEST).kernel}
ARCHS = ("sm_80", "sm_90")
SCRATCH = ["$global_scratch", "$profile_scratch"]

pytestmark = pytest.mark.triton


def place_of(name: str) -> SourcePlace:
    return SourcePlace(SPECS[name].source, MANIFEST.parent, f"{MANIFEST.name} kernel {name}")


def variants_of(name: str, arch: str) -> tuple[Variant, ...]:
    return expand_kernel(SPECS[name], arch, name).variants


def compile_launch(name: str, arch: str, fits: Callable[[Variant], bool] = lambda variant: True) -> Launch:
    """Compile the first variant that fits."""
    from nojit.aot.compile.triton.compiler import compile_variant, describe

    variant = fit_variant(next(filter(fits, variants_of(name, arch))), describe(place_of(name)), name)
    return compile_variant(variant, place_of(name)).launch


def sources(launch: Launch) -> list[str]:
    return [slot.source for slot in launch.layout]


def samples() -> Iterator[tuple[str, str, int, bool]]:
    """Take of each kernel, arch and config the fullest set of hints and the empty one."""
    for name in SPECS:
        for arch in ARCHS:
            kinds = dict.fromkeys((v.config_number, bool(v.hints)) for v in variants_of(name, arch))
            yield from ((name, arch, config, hinted) for config, hinted in kinds)


@pytest.mark.parametrize(("name", "arch", "config", "hinted"), list(samples()))
def test_compiles_to_an_image_that_fits_its_layout(name, arch, config, hinted):
    launch = compile_launch(name, arch, lambda v: (v.config_number, bool(v.hints)) == (config, hinted))
    assert launch.symbol == f"{name.removesuffix('_by_config').removesuffix('_laid_out')}_kernel"
    assert sources(launch)[-2:] == SCRATCH


def parts(path: str, rank: int, *, apart: bool) -> list[str]:
    from triton.tools.tensor_descriptor import TensorDescriptor

    tail = [f"{path}.{part}.{place}" for part in ("shape", "stride") for place in range(rank)]
    flags = [f"{path}.pads_nan"]
    if "round_f32_to_tf32" in TensorDescriptor.__dataclass_fields__:
        flags.append(f"{path}.rounds_tf32")
    return [f"{path}.base", *tail, *flags, *tail] if apart else [f"{path}.map", *tail]


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize(("name", "rank"), [("copy_1d", 1), ("copy_2d", 2), ("copy_3d", 3)])
def test_descriptors_are_tensor_maps_from_sm_90_on_and_come_apart_before(name, rank, arch):
    launch = compile_launch(name, arch)
    apart = arch == "sm_80"
    assert sources(launch) == [*parts("a", rank, apart=apart), *parts("b", rank, apart=apart), *SCRATCH]
    assert [each.source for each in launch.tensor_maps] == ([] if apart else ["a", "b"])


MAPS: list[tuple[dict[str, Any], tuple[int, int, int, tuple[int, int]]]] = [
    # swizzle, element's bytes, CUtensorMapDataType, block: 128 bytes are the most that a swizzled row holds
    ({"dtype": "fp16", "rows": "64"}, (3, 2, 6, (64, 64))),
    ({"dtype": "fp16", "rows": "128"}, (3, 2, 6, (128, 64))),
    ({"dtype": "bf16"}, (3, 2, 9, (64, 64))),
    ({"dtype": "fp32"}, (3, 4, 7, (64, 32))),
    ({"dtype": "fp8e5"}, (2, 1, 0, (64, 64))),
    ({"dtype": "fp8e4nv"}, (2, 1, 0, (64, 64))),
    ({"dtype": "i32"}, (3, 4, 3, (64, 32))),
]


@pytest.mark.parametrize(("axes", "facts"), MAPS, ids=str)
def test_how_tensor_maps_are_encoded(axes, facts):
    launch = compile_launch("copy_2d", "sm_90", lambda variant: axes.items() <= dict(variant.axes).items())
    assert launch.tensor_maps == tuple(TensorMap(source, *facts, fp4_padded=False) for source in ("a", "b"))


def test_a_layout_of_ones_own_is_what_tensor_maps_are_encoded_for():
    default, own = compile_launch("gluon_copy", "sm_90"), compile_launch("gluon_copy_laid_out", "sm_90")
    assert [(each.swizzle, each.block) for each in default.tensor_maps] == [(3, (64, 64))] * 2
    assert [(each.swizzle, each.block) for each in own.tensor_maps] == [(1, (64, 16))] * 2


@pytest.mark.parametrize("there", [True, False])
def test_descriptors_in_tuples(there):
    def fits(variant: Variant) -> bool:
        return ("none" in dict(variant.signature)["extra"]) is not there

    extra = parts("extra.0", 2, apart=False) if there else []
    launch = compile_launch("descriptors_in_a_tuple", "sm_90", fits)
    pair = [*parts("pair.0", 2, apart=False), *parts("pair.1", 2, apart=False)]
    assert sources(launch) == [*pair, *extra, "extra.1", *SCRATCH]
    assert [each.source for each in launch.tensor_maps] == ["pair.0", "pair.1", *(["extra.0"] if there else [])]


@pytest.mark.parametrize("arch", ARCHS)
def test_members_that_are_constants_are_not_passed(arch):
    layouts = {}
    for hints in ({}, {"x.1.0": 1}, {"x.0": 16, "x.1.0": 16, "x.2": 16, "out_ptr": 16}):
        for there in (True, False):

            def fits(variant: Variant, hints: dict[str, int] = hints, there: bool = there) -> bool:
                kept = {path: hint for path, hint in hints.items() if there or path != "x.2"}
                return dict(variant.hints) == kept and ("none" in dict(variant.signature)["x"]) is not there

            layouts["x.1.0" in hints, hints.get("x.1.0"), there] = sources(compile_launch("tuple", arch, fits))[:-2]
    whole = ["x.0", "x.1.0", "x.1.1", "x.2", "x.3", "out_ptr"]
    for (_, hint, there), layout in layouts.items():
        left_out = ({"x.1.0"} if hint == 1 else set()) | (set() if there else {"x.2"})
        assert layout == [path for path in whole if path not in left_out]


def test_hints_on_members_change_the_image():
    from nojit.aot.compile.triton.compiler import compile_variant

    with_hint, without = (
        next(v for v in variants_of("named_tuple", "sm_90") if bool(v.hints) is hinted) for hinted in (True, False)
    )
    assert with_hint.hints == (("tile.0", 16),)
    images = [compile_variant(variant, place_of("named_tuple")) for variant in (with_hint, without)]
    assert sources(images[0].launch) == ["tile.0", "tile.1.0", "tile.1.1", "tile.2", "out_ptr", *SCRATCH]
    assert images[0].launch == images[1].launch


def test_launch_attributes():
    for number, ctas in enumerate((1, 2, 4)):
        launch = compile_launch("cluster", "sm_90", lambda variant, number=number: variant.config_number == number)
        assert launch.num_ctas == ctas
    cooperative, pdl = compile_launch("cooperative", "sm_80"), compile_launch("pdl", "sm_90")
    assert (cooperative.cooperative, cooperative.pdl) == (True, False)
    assert (pdl.cooperative, pdl.pdl) == (False, True)
    assert variants_of("pdl", "sm_80") == ()


def test_shared_and_scratch_memory():
    little, more, most = (
        compile_launch("matmul", "sm_90", lambda variant, number=number: variant.config_number == number).shared_bytes
        for number in range(3)
    )
    assert little <= 48 << 10 < more <= 200 << 10 < most <= 227 << 10
    assert compile_launch("device_descriptors", "sm_80").global_scratch_bytes == 0
    scratch = compile_launch("device_descriptors", "sm_90")
    assert (scratch.global_scratch_bytes, scratch.global_scratch_align) == (256, 128)


def test_ints_that_are_not_specialized_take_no_hints():
    from nojit.aot.compile.triton.compiler import describe
    from nojit.runtime.errors import ManifestError

    source = describe(place_of("unspecialized"))
    assert (source.unspecialized, source.unaligned) == ({"n"}, {"m"})
    for hints, message in (
        ({"n": 1}, "expected no hint 1 for 'n': unspecialized_kernel lists 'n' in do_not_specialize - at here.hints"),
        ({"m": 16}, "lists 'm' in do_not_specialize_on_alignment"),
    ):
        spec = msgspec.structs.replace(SPECS["unspecialized"], hints=[hints])
        with pytest.raises(ManifestError, match=message):
            fit_variant(expand_kernel(spec, "sm_90", "here").variants[0], source, "here")
