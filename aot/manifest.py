"""TOML manifests to typed ones. Mistakes name the file, line, key path, what was expected, what was found.

A manifest says what to build and nothing of how it is packed. Its reference, ``docs/manifest.md``, and the JSON schema
that editors use come from the types below.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct
from nojit.aot.config_rules import check_config, check_options
from nojit.aot.manifest_text import ManifestText
from nojit.aot.mistakes import explain
from nojit.aot.target import check_arch
from nojit.aot.tuning_rules import check_batch, check_tuning
from nojit.runtime.errors import ManifestError, did_you_mean, worded

__all__ = [
    "BundleSpec",
    "DerivedSpec",
    "ExcludeSpec",
    "KernelSpec",
    "Manifest",
    "TuningSpec",
    "find_manifests",
    "json_schema",
    "load_manifest",
]

# a bare `$` would match before a final newline too
_NAME = r"^[A-Za-z_][A-Za-z0-9_]{0,199}$(?!\n)"
_LEAF = r"^[A-Za-z_][A-Za-z0-9_]{0,199}(\.[0-9]{1,3})*$(?!\n)"
_BUNDLE_NAME = r"^[A-Za-z][A-Za-z0-9_.\-]{0,99}$(?!\n)"
_VERSION = r"^[0-9][A-Za-z0-9_.+!]{0,99}$(?!\n)"
_SOURCE = r"^[^:]+:[A-Za-z_][A-Za-z0-9_]*$(?!\n)"
_SPELLINGS = {
    _NAME: "a name of at most 200 letters, digits and '_', not first a digit",
    _LEAF: "a param's name, or name.0 and so on for a member of a tuple",
    _BUNDLE_NAME: "a name of at most 100 letters, digits, '.', '_' and '-', first a letter",
    _VERSION: "a version of at most 100 digits, letters, '.', '_', '+' and '!', first a digit",
    _SOURCE: "package.module:function or path/to/file.py:function",
}
"""What each pattern asks for, for messages."""

Name = Annotated[str, Meta(pattern=_NAME)]
Leaf = Annotated[str, Meta(pattern=_LEAF)]
Expression = Annotated[str, Meta(min_length=1)]


class BundleSpec(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The bundle that the kernels go into. Manifests that name one bundle merge; they must agree on the rest."""

    name: Annotated[str, Meta(pattern=_BUNDLE_NAME, description="Name of the bundle and of its files.")]
    version: Annotated[str, Meta(pattern=_VERSION, description="Version of the bundle.")]
    archs: Annotated[
        list[str], Meta(min_length=1, description="Architectures to build for by default, such as `sm_90`.")
    ]


class DerivedSpec(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A derived constexpr that is not boolean: the values it can take must be named."""

    expr: Annotated[Expression, Meta(description="Evaluated at each call, over params, constexprs and `arch`.")]
    values: Annotated[
        list[int], Meta(min_length=1, description="The values to build; another value at a call matches no variant.")
    ]


class ExcludeSpec(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Variants not to build."""

    when: Annotated[Expression, Meta(description="True for the variants to leave out.")]


class TuningSpec(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the best config depends on, and which configs are tried to find it."""

    key: Annotated[
        list[Expression],
        Meta(min_length=1, max_length=8, description="Expressions over int params that the best config depends on."),
    ]
    bucket: Annotated[
        Literal["quarter_pow2", "sixteenth_pow2", "pow2", "exact"],
        Meta(
            description="How key values are rounded: to the nearest of 4 steps from one power of two to the next, up to one of 16 such steps, up to a power of two, or not."
        ),
    ] = "quarter_pow2"
    names: Annotated[
        list[Name],
        Meta(max_length=8, description="What `terms` call the key's numbers, in order; without it there are no terms."),
    ] = []
    terms: Annotated[
        list[Expression],
        Meta(
            max_length=16,
            description="What the time of a config is a sum of, beside a constant, each times a factor that `nojit tune select` fits: over `names`, constexprs, and `multiprocessors`, how many the device has.",
        ),
    ] = []
    when: Annotated[Expression, Meta(description="Which variants a tuning bundle holds: a rule as `core`.")] = "true"
    alike: Annotated[
        dict[Name, Annotated[list[Annotated[list[Any], Meta(min_length=2)]], Meta(min_length=1)]],
        Meta(description="Of an axis, groups of values whose measurements stand for one another."),
    ] = {}
    apart: Annotated[
        list[Name],
        Meta(
            description="Axes each of whose values, or groups of `alike` ones, has configs of its own: as many as others share."
        ),
    ] = []
    unaligned: Annotated[
        Literal["tuned", "by_hand"],
        Meta(
            description="What serves calls that no hint holds for: the tuned config that is most often best, or the manifest's own configs, where what is best with hints spills without."
        ),
    ] = "tuned"
    max_spill_bytes: Annotated[
        int, Meta(ge=0, description="Leave configs out of a tuning bundle that spill more bytes of a thread than this.")
    ] = 0
    space: Annotated[
        list[dict[str, Any]],
        Meta(
            description="Configs to try: as `configs`, with a list of values wherever there are several; every product is one."
        ),
    ] = []


class KernelSpec(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One kernel and the variants of it to build."""

    name: Annotated[Name, Meta(description="What callers ask for: `bundle.kernel(name)`.")]
    source: Annotated[
        str,
        Meta(
            pattern=_SOURCE,
            description="`package.module:function`, or `path/to/file.py:function` relative to the manifest.",
        ),
    ]
    params: Annotated[
        dict[Name, str],
        Meta(
            description="Type of every param that is not a constexpr, in Triton's spelling; `{axis}` takes a value of the matrix, a `?` after it also builds for None."
        ),
    ] = {}
    grid: Annotated[
        list[Expression],
        Meta(max_length=3, description="One expression per grid dimension; without it, every call gives its grid."),
    ] = []
    matrix: Annotated[
        dict[Name, Annotated[list[Any], Meta(min_length=1)]],
        Meta(
            description="What a call can mean: each axis and its values. An axis named in a type spells types; any other is a constexpr of the kernel."
        ),
    ] = {}
    hints: Annotated[
        list[Annotated[dict[Leaf, Literal[1, 16]], Meta(min_length=1)]],
        Meta(
            description='Sets of specializations to build beside the hint-free variant: `16` divisible by 16, `1` equal to 1. A member of a tuple is `"x.0"`.'
        ),
    ] = []
    derived: Annotated[
        dict[Name, str | DerivedSpec],
        Meta(description="Constexprs that follow from the call and the chosen config, as expressions."),
    ] = {}
    configs: Annotated[
        list[dict[str, Any]],
        Meta(
            min_length=1,
            description="Ways to run the kernel, in order of preference: constexprs and compiler options, with `archs`, `when` (a rule at build time) and `requires` (a rule at each call).",
        ),
    ] = msgspec.field(default_factory=lambda: [{}])
    options: Annotated[
        dict[str, Any], Meta(description="Compiler options that hold for every config, such as `enable_fp_fusion`.")
    ] = {}
    exclude: Annotated[list[ExcludeSpec], Meta(description="Variants not to build.")] = []
    core: Annotated[Expression, Meta(description="Which variants belong to the `core` profile.")] = "true"
    aligned_only: Annotated[
        str,
        Meta(description="Why no variant without hints and `requires` is built; without a reason that is an error."),
    ] = ""
    batch: Annotated[
        list[Name],
        Meta(
            description="Int params that grow with the batch, such as how many rows there are: with `NOJIT_BATCH_INVARIANT=1` no config is chosen by them."
        ),
    ] = []
    tuning: Annotated[TuningSpec | None, Meta(description="How configs are tried, and looked up once tuned.")] = None

    @property
    def has_space(self) -> bool:
        """Say whether there are configs to measure."""
        return self.tuning is not None and bool(self.tuning.space)


class Manifest(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One manifest file."""

    schema: Annotated[Literal[1], Meta(description="Version of the manifest language.")]
    bundle: BundleSpec
    kernel: Annotated[list[KernelSpec], Meta(min_length=1, description="The kernels, one `[[kernel]]` each.")]


def json_schema() -> dict[str, Any]:
    """Return the JSON schema of a manifest, for editors."""
    schema = msgspec.json.schema(Manifest)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "nojit manifest", **schema}


def find_manifests(places: Sequence[Path]) -> list[Path]:
    """List manifests: files as given, and every ``*.toml`` of a folder, sorted.

    Raises:
        ManifestError: a place that does not exist, or a folder without manifests.
    """
    found: list[Path] = []
    for place in places:
        if place.is_dir():
            inside = sorted(path for path in place.glob("*.toml") if path.is_file())
            if not inside:
                raise ManifestError("expected a folder with *.toml manifests", got="none", where=str(place))
            found += inside
        elif place.is_file():
            found.append(place)
        else:
            raise ManifestError("expected a manifest file or a folder of them", got="no such path", where=str(place))
    return list(dict.fromkeys(found))


def load_manifest(path: Path) -> Manifest:
    """Read one manifest.

    Raises:
        ManifestError: unreadable, not TOML, or not a manifest.
    """
    try:
        # some editors begin a file with a byte order mark
        text = path.read_text(encoding="utf-8-sig")
        data = tomllib.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        got = worded(error)
        raise ManifestError("expected a readable UTF-8 file", got=got, where=str(path)) from None
    except tomllib.TOMLDecodeError as error:
        raise ManifestError("expected TOML", got=str(error), where=str(path)) from None
    source = ManifestText(path, text)
    _check_keys(data, source)
    try:
        manifest = msgspec.convert(data, Manifest)
    except msgspec.ValidationError as error:
        what, got, place = explain(error, data, lambda changed: msgspec.convert(changed, Manifest), _SPELLINGS)
        raise ManifestError(what, got=got, where=source.where(place)) from None
    for i, arch in enumerate(manifest.bundle.archs):
        check_arch(arch, source.where(f"$.bundle.archs[{i}]"))
    for i, kernel in enumerate(manifest.kernel):
        _check_kernel(kernel, f"$.kernel[{i}]", source)
    _check_names(manifest, source)
    return manifest


def _check_keys(data: dict[str, Any], source: ManifestText) -> None:
    """Refuse unknown keys ourselves, to name the nearest right spelling."""
    _known(data, Manifest, "$", source)
    _known(data.get("bundle"), BundleSpec, "$.bundle", source)
    kernels = data.get("kernel")
    for i, kernel in enumerate(kernels if isinstance(kernels, list) else []):
        place = f"$.kernel[{i}]"
        _known(kernel, KernelSpec, place, source)
        if isinstance(kernel, dict):
            _known(kernel.get("tuning"), TuningSpec, f"{place}.tuning", source)
            excludes = kernel.get("exclude")
            for j, exclude in enumerate(excludes if isinstance(excludes, list) else []):
                _known(exclude, ExcludeSpec, f"{place}.exclude[{j}]", source)
            derived = kernel.get("derived")
            for name, spec in derived.items() if isinstance(derived, dict) else ():
                _known(spec, DerivedSpec, f"{place}.derived.{name}", source)


def _known(table: Any, struct: type[Struct], place: str, source: ManifestText) -> None:
    if not isinstance(table, dict):
        return
    for key in table:
        if key not in struct.__struct_fields__:
            near = did_you_mean(key, struct.__struct_fields__)
            expected = ", ".join(struct.__struct_fields__)
            raise ManifestError(
                f"expected a key of {expected}", got=f"{key!r}{near}", where=source.where(f"{place}.{key}")
            )


def _check_kernel(kernel: KernelSpec, place: str, source: ManifestText) -> None:
    check_options(kernel.options, f"{place}.options", source)
    for j, config in enumerate(kernel.configs):
        check_config(config, f"{place}.configs[{j}]", source)
    check_batch(kernel, f"{place}.batch", source)
    if kernel.tuning is not None:
        check_tuning(kernel, kernel.tuning, place, source)


def _check_names(manifest: Manifest, source: ManifestText) -> None:
    seen: dict[str, int] = {}
    for i, kernel in enumerate(manifest.kernel):
        if kernel.name in seen:
            raise ManifestError(
                f"expected each kernel name once, got {kernel.name!r} in kernel[{seen[kernel.name]}] too",
                where=source.where(f"$.kernel[{i}].name"),
            )
        seen[kernel.name] = i
