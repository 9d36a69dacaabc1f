"""Typed manifests: what each table and key holds.

The manifests' reference, ``docs/manifest.md``, and the JSON schema that editors use (`nojit.aot.manifest.schema`) come from
these types.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct
from nojit.aot.base.defaults import BUNDLE_NAME, BUNDLE_NAME_WORDS, TOOLCHAIN_NAME, TOOLCHAIN_WORDS
from nojit.aot.manifest.function_names import EXPECTED

__all__ = [
    "HINT_SETS_MAX",
    "PATTERNS",
    "BundleSpec",
    "DerivedSpec",
    "ExcludeSpec",
    "KernelSpec",
    "Manifest",
    "PartialHintsSpec",
    "PointSpec",
    "TuningSpec",
    "struct_schema",
]

# a bare `$` would match before a final newline too
_NAME = r"^[A-Za-z_][A-Za-z0-9_]{0,199}$(?!\n)"
_LEAF = r"^[A-Za-z_][A-Za-z0-9_]{0,199}(\.[0-9]{1,3})*$(?!\n)"
_EFFECT = r"^[A-Za-z_][A-Za-z0-9_]{0,99}(\.[A-Za-z_]{1,99})?$(?!\n)"
_VERSION = r"^[0-9][A-Za-z0-9_.+!]{0,99}$(?!\n)"
_TRITON = r"^>=[0-9]{1,4}(\.[0-9]{1,4}){1,2}$(?!\n)"
_SOURCE = r"^[^:]+:[A-Za-z_].*$(?!\n)"
PATTERNS = {
    _NAME: "a name of at most 200 letters, digits and '_', not first a digit",
    _LEAF: "a param's name, or name.0 and so on for a member of a tuple",
    _EFFECT: "a name such as reset_to_zero or Config.pre_hook",
    BUNDLE_NAME: BUNDLE_NAME_WORDS,
    _VERSION: "a version of at most 100 digits, letters, '.', '_', '+' and '!', first a digit",
    TOOLCHAIN_NAME: TOOLCHAIN_WORDS,
    _TRITON: "the oldest Triton that compiles the kernel, such as '>=3.7'",
    _SOURCE: EXPECTED,
}
"""Description of each string pattern that the types below use, for error messages."""

Name = Annotated[str, Meta(pattern=_NAME)]
Leaf = Annotated[str, Meta(pattern=_LEAF)]
Expression = Annotated[str, Meta(min_length=1)]


class BundleSpec(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The bundle that the kernels go into. Manifests with the same bundle name merge; they must agree on version and architectures."""

    name: Annotated[str, Meta(pattern=BUNDLE_NAME, description="Name of the bundle and of its files.")]
    version: Annotated[str, Meta(pattern=_VERSION, description="Version of the bundle.")]
    archs: Annotated[
        list[str], Meta(min_length=1, description="Architectures to build for by default, such as `sm_90`.")
    ]
    toolchains: Annotated[
        list[Annotated[str, Meta(pattern=TOOLCHAIN_NAME)]],
        Meta(
            description="Versions of Triton to build with, the default one first. Unset: those of `nojit build --toolchain`, or the installed one."
        ),
    ] = []


class DerivedSpec(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A derived constexpr whose expression is not boolean, with the values to build."""

    expr: Annotated[Expression, Meta(description="Evaluated at each call, over params, constexprs and `arch`.")]
    values: Annotated[
        list[int], Meta(min_length=1, description="The values to build. Another value at a call matches no variant.")
    ]


class ExcludeSpec(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Variants not to build."""

    when: Annotated[Expression, Meta(description="True for the variants to remove.")]


HINT_SETS_MAX = 32
"""Default limit on the sets of one table of partial hints."""


class PartialHintsSpec(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A set of hints, and its subsets: a call runs the variant with the most hints that hold for it."""

    hints: Annotated[
        dict[Leaf, Literal[1, 16]], Meta(min_length=1, description="The whole set, written as an entry of `hints`.")
    ]
    missing: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(description="How many hints may be missing at once. Unset: all except one."),
    ] = None
    at_most: Annotated[int, Meta(ge=1, le=4096, description="Limit on the number of sets; more is an error.")] = (
        HINT_SETS_MAX
    )


class PointSpec(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One case to build. A kernel that lists points builds only these, not the product of its matrix."""

    values: Annotated[
        dict[Name, Any],
        Meta(
            description="The value of each axis that has more than one. May also fix derived constexprs to one value."
        ),
    ] = {}
    types: Annotated[
        dict[Name, str],
        Meta(
            description="Types that replace those in `params`; `none` for None. An optional param that is omitted here is not None."
        ),
    ] = {}
    hints: Annotated[
        dict[Leaf, Literal[1, 16]], Meta(description="One set of hints, written as an entry of `hints`.")
    ] = {}
    missing: Annotated[
        int, Meta(ge=0, description="Also build subsets with up to this many hints missing, as `partial_hints` does.")
    ] = 0
    config: Annotated[
        dict[str, Any],
        Meta(description="Constexprs and options. Only the `configs` that have them are built for the point."),
    ] = {}
    archs: Annotated[list[str], Meta(description="Only for these architectures.")] = []
    aligned_only: Annotated[
        str,
        Meta(
            description="The reason to build no variant for calls that violate the hints or the values of derived constexprs. Such a call is an error, unless another point serves it."
        ),
    ] = ""


class TuningSpec(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The problem key that selects a config, and the configs to try."""

    key: Annotated[
        list[Expression],
        Meta(min_length=1, max_length=8, description="Expressions over int params that the best config depends on."),
    ]
    bucket: Annotated[
        Literal["quarter_pow2", "sixteenth_pow2", "pow2", "exact"],
        Meta(
            description="Rounding of the key's values: `quarter_pow2` to the nearest of 4 steps between powers of two, `sixteenth_pow2` up to one of 16 steps, `pow2` up to a power of two, `exact` none."
        ),
    ] = "quarter_pow2"
    names: Annotated[
        list[Name],
        Meta(max_length=8, description="Names of the key's values in `terms`, in order. `terms` needs them."),
    ] = []
    terms: Annotated[
        list[Expression],
        Meta(
            max_length=16,
            description="Cost model of a config: its time is a constant plus each term times a factor that `nojit tune select` fits. Terms use `names`, constexprs and `multiprocessors`, the device's count.",
        ),
    ] = []
    when: Annotated[
        Expression, Meta(description="Rule that selects the variants of a tuning bundle; written like `core`.")
    ] = "true"
    alike: Annotated[
        dict[Name, Annotated[list[Annotated[list[Any], Meta(min_length=2)]], Meta(min_length=1)]],
        Meta(description="For an axis, groups of values that share measurements."),
    ] = {}
    apart: Annotated[
        list[Name],
        Meta(
            description="Axes for which `nojit tune select` selects configs separately for each value, or group of `alike` values. The limit on configs holds for each."
        ),
    ] = []
    unaligned: Annotated[
        Literal["tuned", "by_hand"],
        Meta(
            description="Configs for calls without hints: `tuned` is the tuned config that is most often best, `by_hand` the manifest's configs, for kernels whose best config spills without hints."
        ),
    ] = "tuned"
    max_spill_bytes: Annotated[
        int,
        Meta(
            ge=0,
            description="Skip configs in a tuning bundle that spill more bytes per thread; builds warn of tuned variants that do.",
        ),
    ] = 0
    space: Annotated[
        list[dict[str, Any]],
        Meta(description="Configs to try: written as `configs`, with lists of values. Every product is one config."),
    ] = []


class KernelSpec(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One kernel and its variants."""

    name: Annotated[Name, Meta(description="The name that callers use: `bundle.kernel(name)`.")]
    source: Annotated[
        str,
        Meta(
            pattern=_SOURCE,
            description="`package.module:function`, or `path/to/file.py:function` relative to the manifest. A function without a name is an expression: `package.module:kernels[2]` or `package.module:make_kernel('gelu', 4)`.",
        ),
    ]
    params: Annotated[
        dict[Name, str],
        Meta(
            description="Type of every param that is not a constexpr, in Triton's spelling. `{axis}` takes a value of the matrix; a final `?` also builds for None."
        ),
    ] = {}
    grid: Annotated[
        list[Expression],
        Meta(max_length=3, description="One expression per grid dimension. Without it, every call passes a grid."),
    ] = []
    matrix: Annotated[
        dict[Name, Annotated[list[Any], Meta(min_length=1)]],
        Meta(
            description="The cases to build: each axis and its values. An axis that a type names in braces lists types; any other axis is a constexpr of the kernel."
        ),
    ] = {}
    hints: Annotated[
        list[Annotated[dict[Leaf, Literal[1, 16]], Meta(min_length=1)]],
        Meta(
            description='Sets of hints to build in addition to the variant without hints: `16` divisible by 16, `1` equal to 1. A member of a tuple is `"x.0"`.'
        ),
    ] = []
    partial_hints: Annotated[
        list[PartialHintsSpec], Meta(description="Sets of hints to build with their subsets.")
    ] = []
    derived: Annotated[
        dict[Name, str | DerivedSpec],
        Meta(description="Constexprs that are computed from the call and the selected config, as expressions."),
    ] = {}
    configs: Annotated[
        list[dict[str, Any]],
        Meta(
            min_length=1,
            description="Tunable constexprs and compiler options, in order of preference, with `archs`, `when` (a rule at build time) and `requires` (a rule at each call).",
        ),
    ] = msgspec.field(default_factory=lambda: [{}])
    options: Annotated[
        dict[str, Any], Meta(description="Compiler options of every config, such as `enable_fp_fusion`.")
    ] = {}
    exclude: Annotated[list[ExcludeSpec], Meta(description="Variants not to build.")] = []
    point: Annotated[
        list[PointSpec], Meta(description="The cases to build, instead of the product of the matrix.")
    ] = []
    core: Annotated[Expression, Meta(description="Rule that selects the variants of the profile `core`.")] = "true"
    aligned_only: Annotated[
        str,
        Meta(
            description="The reason to serve only some calls: no variant is built without hints, if any are listed, and every config may have a `requires`. Without a reason, a case must serve every call."
        ),
    ] = ""
    ignores: Annotated[
        list[Annotated[str, Meta(pattern=_EFFECT)]],
        Meta(
            description="Effects of decorators on Triton's launches that calls do not need, by name. An effect that is not named is an error."
        ),
    ] = []
    batch: Annotated[
        list[Name],
        Meta(
            description="Int params that grow with the batch, such as the number of rows. With `NOJIT_BATCH_INVARIANT=1` they select no config."
        ),
    ] = []
    triton: Annotated[
        str,
        Meta(
            pattern=_TRITON,
            description="The oldest Triton that compiles the kernel, such as `>=3.7`. Builds without such a Triton leave the kernel out.",
        ),
    ] = ""
    tuning: Annotated[TuningSpec | None, Meta(description="The problem key, and the configs to try.")] = None

    @property
    def has_space(self) -> bool:
        """Return whether the kernel's tuning table lists a space, that is, configs to measure."""
        return self.tuning is not None and bool(self.tuning.space)


class Manifest(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One manifest file."""

    schema: Annotated[Literal[1], Meta(description="Version of the manifest language.")]
    bundle: BundleSpec
    kernel: Annotated[list[KernelSpec], Meta(min_length=1, description="The kernels, one `[[kernel]]` each.")]


def struct_schema() -> dict[str, Any]:
    """Return the JSON schema of the types above; `nojit.aot.manifest.schema` adds the other checks."""
    schema = msgspec.json.schema(Manifest)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "nojit manifest", **schema}
