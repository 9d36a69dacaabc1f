"""Manifests from recordings, to be edited: varying values become axes or points, common hints a set, and grids expressions. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from math import prod
from typing import Any

from nojit.aot.draft.grids import Sample, grid_of
from nojit.aot.manifest.archs import arch_order
from nojit.aot.manifest.function_names import is_name
from nojit.aot.manifest.options import OPTIONS
from nojit.aot.manifest.toml import flat, toml_key, toml_text, toml_texts, toml_value
from nojit.aot.manifest.types import types_of
from nojit.aot.recorded_builds.specializations import RecordedKernel, Spec, kernels_of
from nojit.aot.recorded_builds.tuned_from_winners import TOOL, Chosen, device_of
from nojit.runtime.errors import RecordingError
from nojit.runtime.recording.file import Recording
from nojit.runtime.recording.generated_kernels import MODULE as GENERATED
from nojit.runtime.tuning.tuned_tables import TunedDevice, TunedTable
from nojit.runtime.types.names import NONE
from nojit.runtime.values import Value, identity

__all__ = ["Written", "manifest_of"]

_DTYPE = "dtype"
# limit of winners and grids to list in comments
_LISTED = 12


@dataclass(frozen=True, slots=True)
class Written:
    """A manifest that was written from a recording."""

    text: str
    kernels: tuple[str, ...]
    """Names of its kernels."""
    left_out: tuple[str, ...]
    """Kernels that the manifest leaves out, with the reason."""
    tables: tuple[TunedTable, ...]
    """Choices of autotuners, for the folder ``tuned`` beside the manifest."""


@dataclass(slots=True)
class _Page:
    lines: list[str] = field(default_factory=list)

    def put(self, name: str, value: str, comment: str = "") -> None:
        self.lines.append(f"{toml_key(name)} = {value}" + (f"  # {flat(comment)}" if comment else ""))

    def note(self, text: str) -> None:
        self.lines.append(f"# {flat(text)}")

    def table(self, header: str) -> None:
        self.lines += ["", header]


def manifest_of(recording: Recording, name: str, where: str = "") -> Written:
    """Return a manifest with the kernels of a recording. A build of it needs the program's packages.

    Args:
        recording: the recording.
        name: name of the bundle.
        where: path of the recording, for an error.

    Raises:
        RecordingError: the recording is damaged, or has no kernel that a manifest can name.
    """
    found = kernels_of(recording)
    chosen, left_out = _chosen(found, recording)
    if not chosen:
        what = "expected a kernel that a manifest can name: build the recording itself"
        raise RecordingError(what, got="; ".join(left_out) or "no launch", where=where)
    page = _Page()
    page.note("From a recording. Read docs/manifest.md for every key. Check this file with: nojit build FILE --dry-run")
    page.put("schema", "1")
    page.table("[bundle]")
    page.put("name", toml_text(name))
    page.put("version", toml_text("0.1"))
    archs = sorted({spec.arch for kernel in chosen for spec in kernel.specs}, key=arch_order)
    page.put("archs", toml_texts(archs))
    device = device_of(recording)
    tables = [_Kernel(kernel, recording, page).write(device) for kernel in chosen]
    return Written(
        text="\n".join(page.lines) + "\n",
        kernels=tuple(kernel.name for kernel in chosen),
        left_out=tuple(left_out),
        tables=tuple(table for table in tables if table is not None),
    )


def _chosen(found: Iterable[RecordedKernel], recording: Recording) -> tuple[list[RecordedKernel], list[str]]:
    """Return the kernels that a manifest can name, and why it leaves out the others."""
    best: dict[str, RecordedKernel] = {}
    left_out: list[str] = []

    def launches(kernel: RecordedKernel) -> int:
        return sum(recording.launches(spec.digest) for spec in kernel.specs)

    for kernel in sorted(found, key=lambda each: (-launches(each), each.closure)):
        spelled = f"{kernel.module}:{kernel.qualname}"
        if kernel.module in (GENERATED, "__main__") or not is_name(spelled):
            left_out.append(f"{spelled}: a manifest cannot import it")
        elif spelled in best:
            left_out.append(f"{spelled} with the source {kernel.closure[:12]}: a manifest names a function once")
        else:
            best[spelled] = kernel
    return sorted(best.values(), key=lambda kernel: kernel.name), left_out


class _Kernel:
    """Writes the entry of one kernel."""

    def __init__(self, kernel: RecordedKernel, recording: Recording, page: _Page) -> None:
        self._kernel = kernel
        self._recording = recording
        self._page = page
        self._specs = kernel.specs
        self._winners = [
            each
            for each in recording.winners
            if (each.get("module"), each.get("qualname"), each.get("closure"))
            == (kernel.module, kernel.qualname, kernel.closure)
            and isinstance(each.get("config"), dict)
            and isinstance(each.get("key"), list)
        ]
        names = [name for name, _ in self._specs[0].constexprs]
        tuned = {str(name) for each in self._winners for name, _ in each["config"].get("kwargs", [])}
        # a constexpr with the name of an option belongs to configs
        self._tunable = {name for name in names if name in tuned or name in OPTIONS}
        self._given = [name for name in names if name not in self._tunable]
        self._types = [_types(spec) for spec in self._specs]
        self._dtypes = self._common_dtypes()

    def write(self, device: TunedDevice | None) -> TunedTable | None:
        """Write the entry; return the tuned table of its autotuner, if it has one.

        Args:
            device: the GPU on which the program ran; None without one.
        """
        page, kernel = self._page, self._kernel
        page.table("[[kernel]]")
        page.put("name", toml_text(kernel.name))
        page.put("source", toml_text(f"{kernel.module}:{kernel.qualname}"))
        self._write_grid()
        cases = self._cases()
        axes = _axes(cases)
        varying = {name: values for name, values in axes.items() if len(values) > 1}
        whole = not self._varying_types() and len(cases) == prod(map(len, axes.values()))
        self._write_params()
        if axes:
            page.table("[kernel.matrix]")
            for name, values in axes.items():
                page.put(name, f"[{', '.join(map(toml_value, values))}]")
        self._write_hints()
        self._write_configs()
        if not whole:
            self._write_points(varying)
        return self._write_winners(axes, device)

    # -- types and constexprs

    def _varying_types(self) -> list[str]:
        """Return the params whose types vary, other than by the axis of dtypes."""
        names = [name for name in self._types[0] if len({types[name] for types in self._types}) > 1]
        return [] if self._dtypes is not None else names

    def _common_dtypes(self) -> list[str] | None:
        """Return the element of each specialization's pointers whose types vary, if it is one element; else None."""
        names = [name for name in self._types[0] if len({types[name] for types in self._types}) > 1]
        pointers = all(types[name].startswith("*") for types in self._types for name in names)
        found = [{types[name].removeprefix("*") for name in names} for types in self._types]
        taken = _DTYPE in self._types[0] or any(name == _DTYPE for name, _ in self._specs[0].constexprs)
        if not names or not pointers or taken or any(len(each) > 1 for each in found):
            return None
        return [next(iter(each)) for each in found]

    def _case(self, number: int) -> dict[str, Value]:
        constexprs = dict(self._specs[number].constexprs)
        dtype: dict[str, Value] = {} if self._dtypes is None else {_DTYPE: self._dtypes[number]}
        return dtype | {name: constexprs[name] for name in self._given}

    def _cases(self) -> list[dict[str, Value]]:
        cases = (self._case(number) for number in range(len(self._specs)))
        return list({tuple(map(identity, case.values())): case for case in cases}.values())

    def _write_params(self) -> None:
        if not self._types[0]:
            return
        self._page.table("[kernel.params]")
        for name, kind in self._types[0].items():
            varies = len({types[name] for types in self._types}) > 1
            self._page.put(name, toml_text(f"*{{{_DTYPE}}}" if varies and self._dtypes is not None else kind))

    def _write_points(self, varying: Mapping[str, Sequence[Value]]) -> None:
        """Write each recorded case as a point, since not every combination of types and constexprs was recorded."""
        seen: set[object] = set()
        for number, types in enumerate(self._types):
            case = self._case(number)
            values = {name: case[name] for name in varying}
            other = {} if self._dtypes is not None else {n: k for n, k in types.items() if k != self._types[0][n]}
            key = (tuple(map(identity, values.values())), tuple(other.items()))
            if key in seen:
                continue
            seen.add(key)
            self._page.table("[[kernel.point]]")
            if values:
                inner = ", ".join(f"{toml_key(name)} = {toml_value(value)}" for name, value in values.items())
                self._page.put("values", f"{{ {inner} }}")
            if other:
                inner = ", ".join(f"{toml_key(name)} = {toml_text(kind)}" for name, kind in other.items())
                self._page.put("types", f"{{ {inner} }}")

    # -- hints

    def _write_hints(self) -> None:
        common = set.intersection(*[{*spec.hints} for spec in self._specs])
        # where a param is None, it takes no hint
        common = {(leaf, hint) for leaf, hint in common if self._is_hintable(leaf)}
        some = {pair for spec in self._specs for pair in spec.hints} - common
        if not common and not some:
            return
        self._page.lines.append("")
        if common:
            self._page.note("hints that hold in every recorded call; calls without one run the variant without hints")
            self._page.lines.append("[[kernel.hints]]")
            for leaf, hint in sorted(common):
                self._page.put(leaf, str(hint))
        if some:
            words = ", ".join(f"{leaf} = {hint}" for leaf, hint in sorted(some))
            self._page.note(f"in some recorded calls only: {words}")

    def _is_hintable(self, leaf: str) -> bool:
        return all(types.get(leaf.partition(".")[0]) != NONE for types in self._types)

    # -- configs

    def _settings(self, spec: Spec) -> dict[str, Value]:
        constexprs, options = dict(spec.constexprs), dict(spec.options)
        own = {name: value for name, value in constexprs.items() if name in self._tunable}
        return own | {name: value for name, value in options.items() if name in OPTIONS and name not in own}

    def _write_configs(self) -> None:
        """Write each recorded setting of tunable constexprs and options, the most launched first."""
        launches: dict[Any, int] = {}
        settings: dict[Any, dict[str, Value]] = {}
        for spec in self._specs:
            found = self._settings(spec)
            key = tuple((name, identity(value)) for name, value in sorted(found.items()))
            settings[key] = found
            launches[key] = launches.get(key, 0) + self._recording.launches(spec.digest)
        configs = [settings[key] for key in sorted(settings, key=lambda key: (-launches[key], str(key)))]
        if configs == [{}]:
            return
        self._page.lines.append("")
        self._page.note("as recorded, the most launched first")
        for config in configs:
            self._page.lines.append("[[kernel.configs]]")
            for name, value in config.items():
                self._page.put(name, toml_value(value))

    # -- grid and winners

    def _write_grid(self) -> None:
        samples = [
            Sample(
                tuple(sample["grid"]),
                {str(name): int(value) for name, value in sample["values"]},
                {name: value for name, value in spec.constexprs if type(value) is int},
            )
            for spec in self._specs
            for sample in self._recording.samples.get(spec.digest, [])
        ]
        runtime = {*self._types[0]}
        samples = [
            Sample(each.grid, {n: v for n, v in each.params.items() if n in runtime}, each.constexprs)
            for each in samples
        ]
        grid = grid_of(samples)
        if grid and None not in grid:
            launches = "1 recorded launch" if len(samples) == 1 else f"{len(samples):,} recorded launches"
            self._page.put("grid", toml_texts([each or "" for each in grid]), f"fits {launches}")
            return
        shown = dict.fromkeys(f"{list(each.grid)} for {dict(each.params)}" for each in samples)
        self._page.note("callers pass the grid" + ("; recorded:" if shown else ""))
        for text in [*shown][:_LISTED]:
            self._page.note(f"  {text}")

    def _write_winners(self, axes: Mapping[str, Sequence[Value]], device: TunedDevice | None) -> TunedTable | None:
        if not self._winners:
            return None
        self._page.lines.append("")
        names = [str(name) for name, _ in self._winners[0]["key"]]
        ints = [name for name in names if self._types[0].get(name) in ("i32", "i64")]
        self._page.note(f"@triton.autotune selected by {', '.join(names) or 'nothing'}:")
        for each in self._winners[:_LISTED]:
            key = ", ".join(f"{name} = {value}" for name, value in each["key"])
            config = each["config"]
            chosen = ", ".join(f"{name} = {value}" for name, value in [*config["kwargs"], *config.get("options", [])])
            self._page.note(f"  {key}: {chosen}")
        if not ints:
            return None
        table = None if device is None else self._table(ints, axes, device)
        if table is None:
            self._page.note("no tuned table: it needs winners that one GPU measured")
        self._page.lines.append("[kernel.tuning]")
        self._page.put("key", toml_texts(ints), "the table in the folder tuned, and nojit tune, select by it")
        self._page.put("bucket", toml_text("exact"))
        return table

    def _table(self, key: Sequence[str], axes: Mapping[str, Sequence[Value]], device: TunedDevice) -> TunedTable | None:
        varying = [name for name in self._types[0] if len({types[name] for types in self._types}) > 1]
        kwargs = {str(name) for each in self._winners for name, _ in each["config"].get("kwargs", [])}
        chosen = Chosen(
            self._winners,
            key=key,
            axes=axes,
            dtype=(_DTYPE, varying if self._dtypes is not None else ()),
            tunable=kwargs & self._tunable,
        )
        return chosen.table(self._kernel.name, device, [("tool", f"{TOOL} {version('nojit')}")])


def _types(spec: Spec) -> dict[str, str]:
    return {name: types_of(kind, spec.label())[0] for name, kind in spec.types}


def _axes(cases: Sequence[Mapping[str, Value]]) -> dict[str, list[Value]]:
    axes: dict[str, dict[Any, Value]] = {name: {} for name in cases[0]}
    for case in cases:
        for name, value in case.items():
            axes[name].setdefault(identity(value), value)
    return {name: list(values.values()) for name, values in axes.items()}
