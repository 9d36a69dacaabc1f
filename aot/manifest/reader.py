"""Reader of TOML manifests. Each mistake has file, line, column, key path, the expected and the found value.

A manifest lists the kernels and variants to build. It says nothing about packaging, which `nojit wheel` does.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct
from nojit.aot.manifest.archs import check_target
from nojit.aot.manifest.config_rules import check_config, check_options
from nojit.aot.manifest.expression_checks import check_rules
from nojit.aot.manifest.function_names import check_name
from nojit.aot.manifest.key_checks import check_keys
from nojit.aot.manifest.mistakes import Mistakes
from nojit.aot.manifest.placeholders import find_placeholders
from nojit.aot.manifest.spec import PATTERNS, BundleSpec, KernelSpec, Manifest
from nojit.aot.manifest.text import ManifestText
from nojit.aot.manifest.tuning_rules import check_batch, check_tuning
from nojit.runtime.base.file_kinds import file_kind, files_in
from nojit.runtime.base.wording import worded
from nojit.runtime.errors import ManifestError

__all__ = [
    "ReadKernel",
    "Reading",
    "bundle_of",
    "find_manifests",
    "load_manifest",
    "read_manifest",
]


def find_manifests(places: Sequence[Path]) -> list[Path]:
    """Return the paths of manifests: each given file, and each ``*.toml`` of a given folder, sorted by name.

    Raises:
        ManifestError: a place that does not exist, or a folder without manifests.
        OSError: a folder cannot be read.
    """
    found: list[Path] = []
    for place in places:
        if place.is_dir():
            inside = [path for path in files_in(place, ".toml") if path.is_file()]
            if not inside:
                raise ManifestError(
                    "expected a folder with *.toml manifests", got="a folder without any", where=str(place)
                )
            found += inside
        elif place.is_file():
            found.append(place)
        else:
            got = file_kind(place.stat().st_mode) if place.exists() else "no such path"
            raise ManifestError("expected a manifest file or a folder of them", got=got, where=str(place))
    return list(dict.fromkeys(found))


def load_manifest(path: Path) -> Manifest:
    """Return the typed content of one manifest file.

    Raises:
        ManifestError: the file cannot be read, is not TOML, or is not a valid manifest; the error lists every mistake.
    """
    mistakes = Mistakes()
    reading = read_manifest(path, mistakes)
    mistakes.raise_found()
    if reading is None or reading.bundle is None:
        raise TypeError("expected a complete manifest if no mistakes were found")
    return Manifest(schema=1, bundle=reading.bundle, kernel=[kernel.spec for kernel in reading.kernels])


@dataclass(frozen=True, slots=True)
class ReadKernel:
    """One ``[[kernel]]`` entry of a manifest, as far as it could be read."""

    number: int
    """Index of the entry among the manifest's kernels, from 0."""
    spec: KernelSpec
    sound: bool
    """True if the entry has no mistake."""
    listable: bool
    """True if the variants can be listed, because each mistake is in a key that no other key depends on.

    `spec` lacks the keys with a mistake.
    """

    @property
    def key(self) -> str:
        """Key path of the entry in the manifest, ``$.kernel[0]`` for the first kernel."""
        return f"$.kernel[{self.number}]"


@dataclass(frozen=True, slots=True)
class Reading:
    """The parts of one manifest that have no mistake."""

    text: ManifestText
    bundle: BundleSpec | None
    """The table ``[bundle]``; None if it has a mistake."""
    kernels: tuple[ReadKernel, ...]
    """The entries whose keys have the right names and types; they may still have other mistakes."""


def read_manifest(path: Path, mistakes: Mistakes) -> Reading | None:
    """Return the parts of a manifest without mistakes, and add the mistakes to `mistakes`; None if it is not TOML."""
    data: dict[str, Any] | None = None
    with mistakes.caught():
        text, data = _toml(path)
    return None if data is None else _reading(ManifestText(path, text), data, mistakes)


def bundle_of(path: Path) -> str:
    """Return the name of the bundle that a manifest builds; empty if the file is not a manifest."""
    try:
        name = _toml(path)[1]["bundle"]["name"]
    except (ManifestError, LookupError, TypeError):
        return ""
    return name if isinstance(name, str) else ""


def _toml(path: Path) -> tuple[str, dict[str, Any]]:
    try:
        # some editors begin a file with a byte order mark
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ManifestError("expected a manifest, a TOML file in UTF-8", got=worded(error), file=str(path)) from None
    try:
        return text, tomllib.loads(text)
    except ValueError as error:
        # an error of the syntax, or an int of more digits than Python reads
        raise _no_toml(path, text, str(error)) from None
    except RecursionError:
        raise ManifestError(
            "expected arrays and tables that nest less deeply", got="too many levels", file=str(path)
        ) from None


def _reading(source: ManifestText, data: dict[str, Any], mistakes: Mistakes) -> Reading:
    found = mistakes.within(source)
    placeholders = list(find_placeholders(data, "$"))
    for place, question in placeholders:
        got = "a place that nojit init left open: replace the string"
        found.add(f"expected {question or 'a value'}", got=got, at=place)
    if placeholders:
        # an answer can change whether the rest is right
        return Reading(source, None, ())
    check_keys(data, Manifest, "$", PATTERNS, found)
    bundle = _converted(data.get("bundle"), BundleSpec, "$.bundle", found)
    if bundle is not None:
        bundle = msgspec.structs.replace(bundle, archs=_known_archs(bundle.archs, found))
    written = data.get("kernel")
    kernels = []
    for number, entry in enumerate(written if isinstance(written, list) else []):
        kernel = _read_kernel(entry, number, found)
        if kernel is not None:
            kernels.append(kernel)
    _check_names(kernels, found)
    return Reading(source, bundle, tuple(kernels))


# keys that no check of another key depends on
_INDEPENDENT: Final = {"grid", "hints", "partial_hints", "core", "exclude", "batch", "tuning"}


def _read_kernel(entry: object, number: int, found: Mistakes) -> ReadKernel | None:
    """Check one kernel's entry and return it; None if mistakes make it unreadable.

    The caller has checked the entry's structure. If all mistakes are in keys that no other key depends on, the
    remaining keys are still checked.
    """
    place = f"$.kernel[{number}]"
    _check_settings(entry, place, found)
    spec = _converted(_without(entry, found.keys_within(place)), KernelSpec, place, found)
    if spec is None:
        return None
    _check_kernel(spec, place, found)
    wrong = found.keys_within(place)
    listable = wrong <= _INDEPENDENT
    if wrong and listable:
        spec = _converted(_without(entry, wrong), KernelSpec, place, found) or spec
    return ReadKernel(number, spec, sound=not wrong, listable=listable)


def _without(entry: object, wrong: set[str]) -> object:
    if not isinstance(entry, dict) or not wrong <= _INDEPENDENT:
        return entry
    return {key: value for key, value in entry.items() if key not in wrong}


def _known_archs(archs: Sequence[str], found: Mistakes) -> list[str]:
    known = []
    for number, arch in enumerate(archs):
        with found.caught():
            known.append(check_target(arch, f"$.bundle.archs[{number}]"))
    return known


def _no_toml(path: Path, text: str, message: str) -> ManifestError:
    found = re.fullmatch(r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)", message, re.DOTALL)
    if found is None:
        return ManifestError("expected TOML", got=message, file=str(path))
    lines = text.split("\n")
    line, column = (int(found[2]), int(found[3])) if found[2] else (len(lines), len(lines[-1]) + 1)
    return ManifestError("expected TOML", got=found[1], file=str(path), line=line, column=column)


S = TypeVar("S", bound=Struct)


def _converted(data: object, struct: type[S], place: str, found: Mistakes) -> S | None:
    """Return a parsed TOML table as `struct`; None if a key of it has a mistake.

    The caller has already added the table's mistakes to `found`.

    `place`: key path in the manifest, for messages.
    """
    before = len(found)
    try:
        return msgspec.convert(data, struct)
    except msgspec.ValidationError as error:
        if before == 0:
            found.add(str(error), at=place)
        return None


def _check_settings(entry: object, place: str, found: Mistakes) -> None:
    """Check the options and configs of a kernel's entry, even if the entry's other keys have mistakes.

    `place`: key path in the manifest, for messages.
    """
    if not isinstance(entry, dict):
        return
    options, configs = entry.get("options"), entry.get("configs")
    if isinstance(options, dict):
        check_options(options, f"{place}.options", found)
    for number, config in enumerate(configs if isinstance(configs, list) else []):
        if isinstance(config, dict):
            check_config(config, f"{place}.configs[{number}]", found)


def _check_kernel(kernel: KernelSpec, place: str, found: Mistakes) -> None:
    with found.caught():
        check_name(kernel.source, f"{place}.source")
    check_batch(kernel, f"{place}.batch", found)
    if kernel.tuning is not None:
        check_tuning(kernel, kernel.tuning, place, found)
    check_rules(kernel, place, found)


def _check_names(kernels: Iterable[ReadKernel], found: Mistakes) -> None:
    seen: dict[str, int] = {}
    for kernel in kernels:
        other = seen.setdefault(kernel.spec.name, kernel.number)
        if other != kernel.number:
            what = f"expected each kernel name once, got {kernel.spec.name!r} in kernel[{other}] too; rename one"
            found.add(what, at=f"{kernel.key}.name")
