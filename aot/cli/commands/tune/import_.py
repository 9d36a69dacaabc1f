"""``nojit tune import``: Convert other tools' measurements to tuned tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final

import click
from nojit.aot.cli.console import PLACE, Arch, Output, counted, output_options
from nojit.aot.cli.options.tuning import configs_option, loss_option, out_option
from nojit.aot.tune.imports.convert import TableRequest, to_tuned
from nojit.aot.tune.imports.importers import ForeignFile, read_foreign
from nojit.aot.tune.select.selection import Bounds
from nojit.aot.tune.select.tuned_file import write_tuned
from nojit.runtime.expr.expression import ExpressionError, parse
from nojit.runtime.tuning.tuned_tables import TunedDevice
from nojit.runtime.values import Value

__all__ = ["command"]

Pairs = tuple[tuple[str, str], ...]
# tuned tables hold 64-bit numbers
_SIZE: Final = click.IntRange(1, 2**63 - 1)


def _pairs(context: click.Context, param: click.Parameter, values: tuple[str, ...]) -> Pairs:
    pairs = tuple(value.partition("=")[::2] for value in values)
    for (name, value), whole in zip(pairs, values, strict=True):
        if not name.isidentifier() or not value:
            raise click.BadParameter(f"expected NAME=VALUE, got {whole!r}", context, param)
    return pairs


def _expressions(context: click.Context, param: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    for value in values:
        try:
            parse(value)
        except ExpressionError as error:
            raise click.BadParameter(str(error), context, param) from None
    return values


@click.command("import")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=PLACE)
@click.option("--kernel", required=True, metavar="K", help="Kernel of the table.")
@click.option(
    "--key",
    multiple=True,
    required=True,
    metavar="EXPR",
    callback=_expressions,
    help="Tuning key, as in the manifest; repeatable, in order.",
)
@click.option(
    "--take",
    metavar="NAME,NAME",
    help="Source of each --key: positions in a cache's key from 0, or M, E, N of a server's file; default: all, or M.",
)
@click.option(
    "--where",
    multiple=True,
    metavar="AXIS=VALUE",
    callback=_pairs,
    help="Cases that the table covers; repeat an axis for more values.",
)
@click.option(
    "--rename",
    multiple=True,
    metavar="OLD=NEW",
    callback=_pairs,
    help="Rename a constexpr of the file to the kernel's; repeatable.",
)
@click.option("--device-name", help="Device name as the driver spells it; default: from the file name.")
@click.option("--arch", type=Arch(), metavar="ARCH", required=True, help="Architecture of the device, such as sm_90.")
@click.option("--multiprocessors", type=_SIZE, metavar="N", required=True, help="Multiprocessors of the device.")
@click.option("--memory-bytes", type=_SIZE, metavar="N", required=True, help="Memory of the device in bytes.")
@loss_option("For files with times: percent that a problem may be slower than its best")
@configs_option("For files with times: maximum configs")
@out_option
@click.option("--force", is_flag=True, help="Overwrite a table that this command did not write.")
@output_options
def command(  # noqa: PLR0917 - click passes each by name
    out: Output,
    files: tuple[Path, ...],
    kernel: str,
    key: tuple[str, ...],
    take: str | None,
    where: Pairs,
    rename: Pairs,
    device_name: str | None,
    arch: str,
    multiprocessors: int,
    memory_bytes: int,
    loss: float,
    most: int,
    folder: Path,
    force: bool,
) -> None:
    """Convert Triton's autotune caches, or the per-device config files of LLM servers, to a tuned table.

    Triton writes caches (NAME.autotune.json) for kernels with `cache_results`; vLLM and SGLang keep files such as
    E=8,N=14336,device_name=NVIDIA_H100_80GB_HBM3.json. Several files make one table. This command measures nothing: the configs may not be the
    best for this kernel.
    """
    foreign = [read_foreign(path) for path in files]
    device = TunedDevice(_device_name(device_name, foreign), arch, multiprocessors, memory_bytes)
    axes: dict[str, tuple[Value, ...]] = {}
    for axis, value in where:
        axes[axis] = (*axes.get(axis, ()), _value(value))
    taken = tuple(take.split(",")) if take else ()
    request = TableRequest(kernel, key, taken, tuple(axes.items()), device, dict(rename), _origin(foreign))
    table = to_tuned(foreign, request, Bounds(loss / 100, most))
    path = write_tuned(table, folder, force=force)
    (entry,) = table.entries
    formats = sorted({file.format for file in foreign})
    out.emit(
        "tune import",
        {
            "path": str(path),
            "kernel": kernel,
            "formats": formats,
            "configs": len(table.configs),
            "rows": len(entry.rows),
        },
    )
    out.line(f"{path}: {counted(len(table.configs), 'config')}, {counted(len(entry.rows), 'row')}")


def _device_name(given: str | None, files: Sequence[ForeignFile]) -> str:
    if given:
        return given
    names = {file.device_name for file in files}
    if len(names) != 1 or "" in names:
        got = ", ".join(sorted(filter(None, names))) or "none"
        raise click.UsageError(f"expected --device-name NAME: the files name {got}")
    return names.pop()


def _origin(files: Sequence[ForeignFile]) -> tuple[tuple[str, str], ...]:
    origin = {
        "files": ", ".join(Path(file.path).name for file in files),
        "format": ", ".join(sorted({file.format for file in files})),
        "tool": f"nojit tune import {version('nojit')}",
        "triton": ", ".join(sorted({file.triton for file in files if file.triton})),
    }
    return tuple((name, value) for name, value in origin.items() if value)


def _value(text: str) -> Value:
    """Parse a value of the command line: a number, ``true``, ``false``, ``none``, else a string."""
    words: dict[str, Value] = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    readers: tuple[Callable[[str], Value], ...] = (int, float)
    for pattern, reader in zip((r"-?[0-9]{1,18}", r"-?[0-9]*\.[0-9]+(e-?[0-9]+)?"), readers, strict=True):
        if re.fullmatch(pattern, text):
            return reader(text)
    return text
