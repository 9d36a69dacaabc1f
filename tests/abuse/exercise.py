"""Do with a bundle everything that can be done with one: open, read both ways, verify, inspect, explain, choose, load, launch.

Whatever the bundle is, each step works or raises an error of ours; and what two readers or two choosers both accept, they agree on.
"""

from __future__ import annotations

import json
import random
import re
import traceback
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from click.testing import CliRunner
from nojit import runtime
from nojit.aot.cli.group import cli
from nojit.aot.inspect.contents import bundle_facts, definition, kernel_facts, variant_facts
from nojit.aot.inspect.diff import diff_bundles
from nojit.aot.inspect.verification import verify_bundle
from nojit.aot.provenance.statement import read_signed_statement
from nojit.aot.signing.verify_signature import verify_signed
from nojit.runtime.bundle.cubin import check_launch, read_cubin
from nojit.runtime.bundle.file import BundleFile
from nojit.runtime.descriptor import TensorDescriptor
from nojit.runtime.errors import NojitError, StreamWarning
from nojit.runtime.kernel import Kernel
from nojit.runtime.table.table import KernelTable
from nojit.runtime.trust.envelope import signed_path
from nojit.runtime.trust.policy import accept_of
from nojit.runtime.trust.trusted_keys import read_trusted_keys
from nojit.runtime.types.constants import constant_of
from nojit.runtime.types.names import NONE, descriptor_parts, is_compiled_in, is_descriptor, is_tuple, members

from tests.conftest import forget_images
from tests.fakecuda import FakeCuda
from tests.support.random_kernels import DEVICES
from tests.support.signing import Signer, envelope, make_statement, trusted_keys
from tests.support.tensors import InterfaceTensor, PointerTensor

__all__ = ["Exerciser", "FindingError"]

SIGNER = Signer.of("the builder")
ROWS = 24
"""Rows of a kernel that are looked at one by one, and cases that are called."""
CORE_ROWS = 6
"""Rows whose images are checked where only the engine is exercised."""
BOUNDS = {f"i{bits}": (-(1 << bits - 1), (1 << bits - 1) - 1) for bits in (8, 16, 32, 64)} | {
    f"u{bits}": (0, (1 << bits) - 1) for bits in (8, 16, 32, 64)
}
TORCH = {
    "fp16": "float16",
    "fp32": "float32",
    "bf16": "bfloat16",
    "fp64": "float64",
    "i32": "int32",
    "i64": "int64",
    "i8": "int8",
}
GRIDS: tuple[Any, ...] = (
    (1,),
    (3, 2),
    (1, 1, 1),
    (4,),
    (0,),
    (2**31,),
    (5, 70_000),
    lambda meta: (len(meta),),
    lambda _: (2, 2),
)
JUNK: tuple[Any, ...] = (
    None,
    True,
    -1,
    2**31,
    2**63,
    2**64,
    2**70,
    1.5,
    "x",
    "fast",
    (),
    (1,),
    [1],
    object,
    float("nan"),
    b"x",
)


# what a table may say and a device not do: the driver refuses it by name, and its error is ours
DRIVERS_OWN = re.compile(
    r"a dependent launch on a device before|cluster of \d+ x \d+ on a grid|a known interleave, swizzle|"
    # an image whose static shared memory alone is more than the device has
    r"bytes of shared memory, the limit is -"
)


class FindingError(Exception):
    """What must not happen."""


class Exerciser:
    """Takes bundles one by one.

    Attributes:
        steps: how often each step was taken and worked, and how often it raised which error.

    Args:
        folder: where the bundle is written, again and again.
        driver: the fake driver.
        framework: the fake framework.
        core_only: leave out the steps that run in Python alone, so that a sanitizer sees several times as many bundles.
    """

    def __init__(self, folder: Path, driver: FakeCuda, framework: ModuleType, *, core_only: bool = False) -> None:
        self.steps: dict[tuple[str, str], int] = {}
        self._path = folder / "test-1.0.nojit"
        self._keys = trusted_keys(folder / "keys.toml", SIGNER)
        self._driver = driver
        self._framework = framework
        self._core_only = core_only
        self._chance = random.Random(0)

    def take(self, data: bytes, chance: random.Random, statement: Callable[[bytes], bytes] | None = None) -> None:
        """Take one bundle.

        Args:
            data: the file.
            chance: what calls are made.
            statement: what changes the statement that is signed; None leaves the bundle without one.

        Raises:
            FindingError: something else than an error of ours came out.
        """
        self._chance = chance
        self._driver.reset()
        self._driver.set_devices(*DEVICES)
        forget_images()
        self._path.write_bytes(data)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", StreamWarning)
            self._all(statement)
        if violations := [one for one in self._driver.violations() if not DRIVERS_OWN.search(one)]:
            raise FindingError(f"the driver saw {violations[:3]}")

    def _all(self, statement: Callable[[bytes], bytes] | None) -> None:
        file = self._step("open", lambda: BundleFile(self._path))
        if file is None:
            return
        with file:
            if self._core_only:
                for name in file.kernels:
                    self._read_in_core(file, name)
            else:
                self._read_all(file, statement)
        bundle = self._step("load", lambda: runtime.load(self._path))
        if bundle is None:
            return
        with bundle:
            for name in bundle.kernels:
                handle = self._step("kernel", partial(bundle.kernel, name))
                if handle is not None:
                    self._call(handle)
            device = self._chance.randrange(len(DEVICES))
            self._step("preload", lambda: bundle.preload(device=device))

    def _read_all(self, file: BundleFile, statement: Callable[[bytes], bytes] | None) -> None:
        self._step("facts", lambda: str(bundle_facts(file)))
        for name in file.kernels:
            self._read(file, name)
        verified = self._step("verify", lambda: (verify_bundle(file), True)[1])
        if statement is not None:
            self._judge(file, statement)
        if self._chance.random() < 0.05:
            self._step("diff", lambda: str(diff_bundles(file, file)))
        if self._chance.random() < 0.02:
            self._command_line(verified=bool(verified))

    def _read_in_core(self, file: BundleFile, name: str) -> None:
        table = self._step("table", lambda: file.table(name))
        for row in range(len(table))[:CORE_ROWS] if table is not None else ():
            self._step("row in the engine", partial(_check_image, file, table, row))

    def _step(self, name: str, work: Callable[[], Any]) -> Any:
        """Return what a step gives; None if it raised an error of ours."""
        try:
            result = work()
        except NojitError as error:
            said = f"{type(error).__name__} {getattr(error, 'rule', '')}".rstrip()
            str(error)
            result = None
        except Exception as error:
            where = "".join(traceback.format_exception(error)[-6:])
            raise FindingError(f"{name} raised {type(error).__name__}: {error}\n{where}") from error
        else:
            said = "works"
        self.steps[name, said] = self.steps.get((name, said), 0) + 1
        return result

    # reading

    def _read(self, file: BundleFile, name: str) -> None:
        table = self._step("table", lambda: file.table(name))
        if table is None:
            return
        self._step("define", lambda: str(definition(table)))
        self._step("sum up", lambda: str(kernel_facts(file, name)))
        self._step("list variants", lambda: str(variant_facts(file, name)))
        for row in range(len(table))[:ROWS]:
            self._step("row", partial(_use_row, file, table, row))

    def _judge(self, file: BundleFile, change: Callable[[bytes], bytes]) -> None:
        """Read what is signed of the bundle, under a policy and without."""
        payload = change(_payload(self._path))
        beside = Path(signed_path(str(self._path)))
        beside.write_bytes(envelope(payload, SIGNER))
        accept = accept_of("signed", str(self._keys))
        trusted = read_trusted_keys(str(self._keys))
        self._step("open signed", lambda: BundleFile(self._path, accept).close())
        self._step("verify signed", lambda: verify_signed(file, trusted))
        said = self._step("statement", lambda: read_signed_statement(self._path, file.digest))
        if said is not None:
            self._step("facts of the statement", lambda: str(said.facts(file.digest, signed=True)))
            self._step("recipe", said.recipe)
        beside.unlink()

    def _command_line(self, *, verified: bool) -> None:
        for words in (["inspect"], ["--json", "inspect"], ["verify"]):
            result = CliRunner().invoke(cli, [*words, str(self._path)])
            if isinstance(result.exception, SystemExit | None) and result.exit_code in (0, 1, 3):
                if words == ["verify"] and (result.exit_code == 0) != verified:
                    raise FindingError(f"verify exits with {result.exit_code}")
                continue
            raise FindingError(f"{words} ended with {result.exit_code}, {result.exception!r}")
        self.steps["command line", "works"] = self.steps.get(("command line", "works"), 0) + 1

    # calling

    def _call(self, handle: Kernel) -> None:
        chance = self._chance
        table = handle._bundles.first_table
        arch = handle._bundles.bundles[0].image_arch.number
        device = DEVICES.index(arch) if arch in DEVICES else 0
        # of a call without a tensor, the current device is meant
        self._driver.make_current(device)
        for _ in range(2 if table.cases else 0):
            number = chance.randrange(len(table.cases))
            call = self._arguments(table, number, device)
            grid = chance.choice(GRIDS)
            if self._core_only:
                self._step("warm up", partial(call, handle.warmup))
            else:
                self._choose(handle, call)
            for _ in range(2):
                self._step("launch", partial(call, _on_a_stream(handle[grid])))
                self._step("launch by the bundle's grid", partial(call, _on_a_stream(handle)))
        if not self._core_only:
            self._step("params", lambda: (str(handle.params), str(handle.configs), handle.arg_names))

    def _choose(self, handle: Kernel, call: Callable[[Callable[..., Any]], Any]) -> None:
        """Have a variant chosen in Python and by the engine, which choose the same."""
        told = self._step("explain", partial(call, handle.explain))
        str(told)
        warmed = self._step("warm up", partial(call, handle.warmup))
        self._step("choices", partial(call, handle.choices))
        if told is not None and warmed is not None:
            source, row = warmed.plan.payload
            if row != told.row:
                raise FindingError(f"row {row} runs, and row {told.row} is explained, of {source}")

    def _arguments(self, table: KernelTable, number: int, device: int) -> Callable[[Callable[..., Any]], Any]:
        """Make arguments for a case, right ones mostly; return what makes a call with them."""
        chance = self._chance
        case = table.cases[number]
        types = dict(zip(table.runtime_params(), table.signatures[case.signature], strict=True))
        chosen = table.axis_values(number)
        given: dict[str, Any] = {}
        for param in table.params:
            odd = chance.random() < 0.03
            if param.name in types:
                given[param.name] = chance.choice(JUNK) if odd else self._argument(types[param.name], device)
            elif param.name in chosen and chance.random() < 0.95:
                given[param.name] = chance.choice(JUNK) if odd else chosen[param.name]
        if chance.random() < 0.1:
            given.pop(chance.choice([*given, ""]), None)
        more: dict[str, Any] = {}
        if table.configs and chance.random() < 0.15:
            config = chance.choice(table.configs)
            more = dict([*config.constexprs, *config.options])
        more = {name: value for name, value in more.items() if name not in given}
        stop = next((place for place, param in enumerate(table.params) if param.name not in given), len(table.params))
        places = chance.randrange(stop + 1)
        first = [given.pop(param.name) for param in table.params[:places]]
        return lambda function: function(*first, **given, **more)

    def _argument(self, kind: str, device: int) -> Any:
        chance = self._chance
        if is_compiled_in(kind):
            return None if kind == NONE else constant_of(kind)
        if is_tuple(kind):
            return tuple([self._argument(member, device) for member in members(kind)])
        if is_descriptor(kind):
            return self._descriptor(*descriptor_parts(kind), device)
        if kind.startswith("*"):
            return self._tensor(kind[1:].removeprefix("k"), device)
        if kind in BOUNDS:
            least, most = BOUNDS[kind]
            return chance.choice(
                (0, 1, 16, 17, 64, 64, 100, most, most - 15, least) if chance.random() < 0.97 else (least - 1, most + 1)
            )
        return chance.choice(
            (False, True) if kind in ("i1", "u1") else (0.0, 1.0, -2.5, 1e300, float("inf"), float("nan"))
        )

    def _descriptor(self, element: str, block: tuple[int, ...], device: int) -> TensorDescriptor:
        chance = self._chance
        sizes = [chance.choice((1, 7, 64) if chance.random() < 0.97 else (0, 2**31, 2**32 + 1)) for _ in block]
        strides = [*(16 * chance.choice((1, 64)) for _ in block[1:]), 1]
        blocks, paddings = chance.choice((block, None)), chance.choice(("zero", "zero", "zero", "nan"))
        return TensorDescriptor(self._tensor(element, device), sizes, strides, blocks, paddings)

    def _tensor(self, element: str, device: int) -> Any:
        chance = self._chance
        address = chance.choice((0x4000, 0x4000, 0x4000, 0x4000, 0x4008, 0x4001))
        if element in TORCH and chance.random() < 0.7:
            return self._framework.Tensor(address, TORCH[element], (64,), device)
        if element == "fp16" and chance.random() < 0.3:
            return InterfaceTensor(address)
        return PointerTensor(address, element, f"cuda:{device}")


# what a build says of itself beside what the runtime looks at
BUILT = {
    "externalParameters": {
        "arch": "sm_90", "manifests": ["k.toml"], "profile": "full", "kernels": [], "tuning": True, "tuned": False,
        "keepGoing": False, "minDriver": None, "lineInfo": False,
    },
    "internalParameters": {"failures": 0, "settings": "TRITON_X=1"},
    "resolvedDependencies": [
        {"name": "source", "uri": "git+https://example.org/k", "digest": {"gitCommit": "0" * 40}, "annotations": {"dirty": True}},
        {"name": "k.toml", "digest": {"sha256": "0" * 64}},
        {"name": "kernel.py:k", "digest": {"nojitSource": "0" * 64}},
        {"name": "triton", "uri": "pkg:pypi/triton@3.9.0", "annotations": {"imported": True, "editable": True}},
    ],
}  # fmt: skip
RUN = {
    "builder": {"id": "local", "version": {"nojit": "0.1.0", "python": "3.12"}},
    "metadata": {"startedOn": "2026-01-01T00:00:00Z", "finishedOn": "2026-01-01T00:00:00Z"},
}


def _payload(path: Path) -> bytes:
    """Spell the statement of a bundle that says what a build would."""
    statement = make_statement(path)
    predicate = statement["predicate"]
    definition = predicate["buildDefinition"]
    predicate["buildDefinition"] = {
        field: definition.get(field, {}) | said if isinstance(said, dict) else said for field, said in BUILT.items()
    }
    predicate["runDetails"] = RUN
    return json.dumps(statement, sort_keys=True, separators=(",", ":")).encode()


def _check_image(file: BundleFile, table: KernelTable, row: int) -> None:
    """Check a row's image as a first launch does, and read all that it says."""
    launch = table.launches[table.columns["launch"][row]]
    image = file.image(table.kernel, table.columns["image"][row])
    check_launch(image, launch, file.index.target.image_arch, f"row {row}")
    read_cubin(image)


def _use_row(file: BundleFile, table: KernelTable, row: int) -> None:
    """Check a row and its image as its first launch does."""
    where = f"row {row}"
    table.constexprs(row)
    table.label(row)
    table.variant_id(row)
    table.check_row(row, where)
    _check_image(file, table, row)


def _on_a_stream(launch: Callable[..., Any]) -> Callable[..., Any]:
    """Launch on the default stream if no argument names one, without the warning: it comes once in a process, and has tests."""

    def run(*args: Any, **named: Any) -> Any:
        try:
            return launch(*args, **named)
        except StreamWarning:
            # a param of that name takes the keyword
            return None if "stream" in named else launch(*args, **named, stream=0)

    return run
