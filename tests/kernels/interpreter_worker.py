"""The child process of `tests.kernels.interpreter`: reads the manifests, picks a config, runs kernels interpreted.

It holds a call to what the manifest says: types of parameters, ranges of integers, cases and configs that are built.
"""

from __future__ import annotations

import importlib
import pickle
import sys
import tomllib
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
import triton.language as tl
from nojit.runtime.expr import expression as expr
from nojit.runtime.values import FunctionRef
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

from tests.kernels.interpreter import TensorArgument, read_storage
from tests.kernels.interpreter_haste import hasten

ARCH = "sm_90"
OPTIONS = {"num_warps", "num_stages", "num_ctas", "maxnreg"}
RULES = {"archs", "when", "requires"}
POINTERS = {
    "float16": "*fp16",
    "bfloat16": "*bf16",
    "float32": "*fp32",
    "float8_e4m3fn": "*fp8e4nv",
    "float8_e5m2": "*fp8e5",
    "float64": "*fp64",
    "int16": "*i16",
    "int64": "*i64",
    "int32": "*i32",
    "int8": "*i8",
    "uint8": "*u8",
}
FP8 = {tl.float8e4nv: torch.float8_e4m3fn, tl.float8e5: torch.float8_e5m2}
RANGES = {"i32": 31, "i64": 63}


class Kernel:
    """One `[[kernel]]` of a manifest."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.spec = spec
        module, _, function = spec["source"].removeprefix("./").replace(".py:", ":").partition(":")
        self.function = getattr(importlib.import_module(module), function)
        self.matrix: dict[str, list[Any]] = {
            axis: [_constexpr(value) for value in values] for axis, values in spec.get("matrix", {}).items()
        }
        self.type_axes = [
            axis for axis in self.matrix if any(f"{{{axis}}}" in kind for kind in spec["params"].values())
        ]
        self.derived = {
            name: rule if isinstance(rule, str) else rule["expr"] for name, rule in spec.get("derived", {}).items()
        }

    def launch(self, args: tuple[Any, ...], constexprs: dict[str, Any], grid: tuple[int, ...] | None) -> str:
        """Run the kernel over a grid, its own if none is given; return the config in words."""
        values = self._bind(args)
        axes = self._find_types(values)
        self._check_case(constexprs)
        config = self._choose_config(values, axes, constexprs)
        known = self._names(values, axes, constexprs | config)
        derived = self._derive(known)
        if grid is None:
            grid = tuple(int(str(expr.parse(side).evaluate(known))) for side in self.spec["grid"])
        settings = {name: value for name, value in config.items() if name not in OPTIONS | RULES}
        plain = {name: value.tensor if isinstance(value, Argument) else value for name, value in values.items()}
        self.function[grid](**plain, **{**{key: _function(x) for key, x in constexprs.items()}, **settings, **derived})
        return ", ".join(f"{name}={value}" for name, value in {**settings, **derived}.items())

    def _derive(self, known: dict[str, Any]) -> dict[str, Any]:
        return {name: expr.parse(rule).evaluate(known) for name, rule in self.derived.items()}

    def _bind(self, args: tuple[Any, ...]) -> dict[str, Any]:
        names = [name for name in self.function.arg_names if name in self.spec["params"]]
        assert names == self.function.arg_names[: len(names)], "the constexprs of a kernel come last"
        assert set(names) == set(self.spec["params"]), "the manifest lists a param that the kernel does not have"
        assert len(args) == len(names), f"expected {len(names)} arguments, got {len(args)}"
        return dict(zip(names, args, strict=True))

    def _find_types(self, values: dict[str, Any]) -> dict[str, str]:
        for choice in product(*(self.matrix[axis] for axis in self.type_axes)):
            axes = dict(zip(self.type_axes, choice, strict=True))
            if all(_takes(kind.format(**axes), values[name]) for name, kind in self.spec["params"].items()):
                return axes
        raise TypeError(f"{self.spec['name']}: no types of the manifest take {values}")

    def _check_case(self, constexprs: dict[str, Any]) -> None:
        for axis in self.matrix.keys() - set(self.type_axes):
            allowed = [(type(value), value) for value in self.matrix[axis]]
            if (type(constexprs.get(axis)), constexprs.get(axis)) not in allowed:
                raise TypeError(f"{self.spec['name']}: {axis} is not built: {constexprs.get(axis)!r}")

    def _choose_config(self, values: dict[str, Any], axes: dict[str, str], given: dict[str, Any]) -> dict[str, Any]:
        for config in self._configs(given):
            names = self._names(values, axes, given | config)
            excluded = [rule["when"] for rule in self.spec.get("exclude", [])]
            if any(expr.parse(rule).evaluate(names | self._derive(names)) for rule in excluded):
                continue
            if all(expr.parse(config.get(rule, "true")).evaluate(names) for rule in ("when", "requires")):
                return config
        raise LookupError(f"{self.spec['name']}: no config of the manifest serves {given} for {axes}")

    def _configs(self, given: dict[str, Any]) -> Iterator[dict[str, Any]]:
        # what is for other devices alone runs as there
        archs = [arch for config in self.spec["configs"] for arch in config.get("archs", [ARCH])]
        arch = ARCH if ARCH in archs else archs[0]
        for config in self.spec["configs"]:
            if arch in config.get("archs", [arch]) and all(
                given.get(key, value) == value for key, value in config.items()
            ):
                yield config

    def _names(self, values: dict[str, Any], axes: Mapping[str, str], constants: Mapping[str, Any]) -> dict[str, Any]:
        plain = {name: value for name, value in constants.items() if name not in RULES}
        plain = {name: value.name if isinstance(value, FunctionRef) else value for name, value in plain.items()}
        return {"arch": 90, **axes, **plain, **{name: _seen(value) for name, value in values.items()}}


def _constexpr(value: Any) -> Any:
    """Return a value of an axis as a call passes it; TOML spells some as tables."""
    if not isinstance(value, dict):
        return value
    return FunctionRef(value["function"]) if "function" in value else None


def _function(value: Any) -> Any:
    """Return the function that a constexpr names; any other value stays as it is."""
    if not isinstance(value, FunctionRef):
        return value
    module, _, name = value.name.partition(":")
    return getattr(importlib.import_module(module.removesuffix(".py")), name)


def _seen(value: Any) -> Any:
    """Return what expressions see of an argument."""
    if isinstance(value, Argument):
        return expr.Pointer(value.address)
    return value


def _takes(kind: str, value: Any) -> bool:
    """Say whether a parameter of type `kind` takes an argument."""
    if value is None:
        return kind.endswith("?")
    kind = kind.removesuffix("?")
    if isinstance(value, Argument):
        return kind == POINTERS[str(value.tensor.dtype).removeprefix("torch.")]
    if isinstance(value, bool) or kind.startswith("*"):
        return False
    if isinstance(value, int):
        return kind in RANGES and -(1 << RANGES[kind]) <= value < 1 << RANGES[kind]
    return kind == "fp32" and isinstance(value, float)


class Argument:
    """A tensor of a call over memory of this process; Triton's interpreter takes it for a tensor."""

    def __init__(self, sent: TensorArgument, storages: dict[int, torch.UntypedStorage]) -> None:
        self.address = sent.address
        self.tensor = torch.empty(0, dtype=getattr(torch, sent.dtype))
        self.tensor.set_(storages[sent.storage], sent.offset, sent.size, sent.stride)


def _storage(content: bytes) -> torch.UntypedStorage:
    if not content:
        return torch.empty(0, dtype=torch.uint8).untyped_storage()
    return torch.frombuffer(bytearray(content), dtype=torch.uint8).untyped_storage()


def _serve(manifests: dict[str, dict[str, Any]], question: Any) -> Any:
    name, sent, constexprs, grid, contents = question
    storages = {key: _storage(content) for key, content in contents.items()}
    args = tuple(Argument(arg, storages) if isinstance(arg, TensorArgument) else arg for arg in sent)
    config = Kernel(manifests[name]).launch(args, constexprs, grid)
    after = {key: read_storage(storage) for key, storage in storages.items()}
    return config, {key: content for key, content in after.items() if content != contents[key]}


def _teach_bf16() -> None:
    """Make bf16 right in the interpreter, which keeps it as bits, truncates to it and multiplies the bits as integers."""
    plain_cast, plain_dot = InterpreterBuilder.cast_impl, InterpreterBuilder.create_dot

    def cast(self: InterpreterBuilder, value: TensorHandle, to: tl.dtype) -> TensorHandle:
        if (value.dtype.scalar, to.scalar) == (tl.bfloat16, tl.float32):
            return TensorHandle((value.data.astype(np.uint32) << 16).view(np.float32), to.scalar)
        if (value.dtype.scalar, to.scalar) != (tl.float32, tl.bfloat16):
            return plain_cast(self, value, to)
        rounded = torch.from_numpy(np.ascontiguousarray(value.data)).to(torch.bfloat16)
        return TensorHandle(rounded.view(torch.uint16).numpy(), to.scalar)

    def dot(self: InterpreterBuilder, a: TensorHandle, b: TensorHandle, *rest: Any) -> TensorHandle:
        wide = [cast(self, x, tl.float32) if x.dtype.scalar == tl.bfloat16 else x for x in (a, b)]
        return plain_dot(self, *wide, *rest)

    InterpreterBuilder.cast_impl, InterpreterBuilder.create_dot = cast, dot


def _teach_fp8() -> None:
    """Make products of fp8 right in the interpreter, which takes NaNs for numbers and denormals of e5m2 for 0."""
    plain_dot = InterpreterBuilder.create_dot

    def wide(x: TensorHandle) -> TensorHandle:
        if x.dtype.scalar not in FP8:
            return x
        values = torch.from_numpy(np.ascontiguousarray(x.data).view(np.uint8)).view(FP8[x.dtype.scalar])
        return TensorHandle(values.float().numpy(), tl.float32)

    def dot(self: InterpreterBuilder, a: TensorHandle, b: TensorHandle, *rest: Any) -> TensorHandle:
        return plain_dot(self, wide(a), wide(b), *rest)

    InterpreterBuilder.create_dot = dot


def _teach_fma() -> None:
    """Make `tl.fma` round once, as the hardware does: the product of two fp32 numbers is exact in fp64."""

    def fma(self: InterpreterBuilder, x: TensorHandle, y: TensorHandle, z: TensorHandle) -> TensorHandle:
        wide = x.data.astype(np.float64) * y.data.astype(np.float64) + z.data.astype(np.float64)
        return TensorHandle(wide.astype(x.data.dtype), z.dtype.scalar)

    InterpreterBuilder.create_fma = fma


def _read_manifests(folder: Path) -> dict[str, dict[str, Any]]:
    texts = [path.read_text() for path in sorted(folder.glob("*.toml"))]
    return {spec["name"]: spec for text in texts for spec in tomllib.loads(text)["kernel"]}


def main() -> None:
    """Answer questions from stdin on stdout until stdin ends."""
    answers, sys.stdout = sys.stdout.buffer, sys.stderr
    _teach_bf16()
    _teach_fp8()
    _teach_fma()
    hasten()
    folder = Path(sys.argv[1])
    # for sources that are named relative to their manifest
    sys.path.append(str(folder))
    manifests = _read_manifests(folder)
    while True:
        try:
            question = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            if question[0] not in manifests:
                importlib.invalidate_caches()
                manifests = _read_manifests(folder)
            answer = _serve(manifests, question)
        except Exception as error:  # noqa: BLE001 - the parent raises it
            answer = RuntimeError(f"{type(error).__name__}: {error}")
        pickle.dump(answer, answers)
        answers.flush()


if __name__ == "__main__":
    main()
