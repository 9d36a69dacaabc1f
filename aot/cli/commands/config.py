"""``nojit config``: Print how to compile and link programs with libnojit."""

from __future__ import annotations

from pathlib import Path

import click
from nojit.aot.cli.console import Output, output_options
from nojit.runtime import _core
from nojit.runtime.errors import PackageError

__all__ = ["command", "facts"]


@click.command("config")
@click.option("--cflags", "asked", flag_value="cflags", multiple=True, help="Flags of the compiler.")
@click.option("--libs", "asked", flag_value="libs", multiple=True, help="Flags of the linker.")
@click.option("--include-dir", "asked", flag_value="include_dir", multiple=True, help="Folder of nojit.h.")
@click.option("--lib-dir", "asked", flag_value="lib_dir", multiple=True, help="Folder of libnojit.so.")
@click.option("--cmake-dir", "asked", flag_value="cmake_dir", multiple=True, help="Folder for CMake's nojit_DIR.")
@click.option("--pkgconfig-dir", "asked", flag_value="pkgconfig_dir", multiple=True, help="Folder for PKG_CONFIG_PATH.")
@output_options
def command(out: Output, asked: tuple[str, ...]) -> None:
    """Print how to compile and link programs in C, C++ and other languages with libnojit.

    With options it prints only what they ask for, on one line. Without, it prints everything.
    """
    known = facts()
    out.emit("config", known)
    if asked:
        out.line(" ".join(known[name] for name in asked))
        return
    out.table(("what", "value"), list(known.items()))


def facts() -> dict[str, str]:
    """Return the flags and folders by name.

    Raises:
        PackageError: the library or its header is missing.
    """
    runtime = Path(_core.__file__).parent
    include = runtime / "engine/include"
    for needed in (runtime / "libnojit.so", runtime / "libnojit.so.0", include / "nojit.h"):
        if not needed.exists():
            raise PackageError("expected an installation of nojit with libnojit", got=f"no {needed}")
    return {
        "cflags": f"-I{include}",
        "libs": f"-L{runtime} -lnojit -Wl,-rpath,{runtime}",
        "include_dir": str(include),
        "lib_dir": str(runtime),
        "cmake_dir": str(runtime / "engine/cmake"),
        "pkgconfig_dir": str(runtime / "engine/pkgconfig"),
    }
