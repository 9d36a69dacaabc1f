"""Build libnojit, the engine in C without Python, and `nojit.runtime._core`, which binds it to Python."""

from __future__ import annotations

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
ENGINE, BINDING = "runtime/engine", "runtime/binding"
# as the loader finds the library; a linker finds it by LINKED, a text: wheels hold no links
LIBRARY, LINKED = "libnojit.so.0", "libnojit.so"
SYMBOLS = f"{ENGINE}/libnojit.map"
ROOMS = ("aot", "kernels", "runtime")
# -O3 inlines more of the launch path than -O2: 3% fewer instructions. Without a PLT, the functions of a library are looked up when it is
# loaded, else the first launch would pay for each of them
COMPILE = ["-std=c11", "-O3", "-fvisibility=hidden", "-fno-plt", "-Wall", "-Wextra"]
# debug info contains the paths of the machine that built it
LINK = ["-Wl,--strip-debug", "-Wl,--build-id=none", "-Wl,-z,now"]


def files(folder: str, pattern: str) -> list[str]:
    """List files of a folder and its subfolders, relative to the checkout."""
    return sorted(str(path.relative_to(ROOT)) for path in (ROOT / folder).rglob(pattern))


def packages() -> list[str]:
    """List the packages: every folder of a room with an ``__init__.py``, and those that are mapped or hold data alone."""
    found = (Path(path).parent for room in ROOMS for path in files(room, "__init__.py"))
    return ["nojit", "nojit.manifests", *(".".join(("nojit", *folder.parts)) for folder in found)]


class BuildBoth(build_ext):
    """Build libnojit beside the extension, which finds it there."""

    def run(self) -> None:
        """Build both; an editable installation keeps those of the checkout that are newer than their sources."""
        if self.inplace and self._are_current():
            return
        super().run()
        if self.inplace and _has_flags():
            # the next build without them compiles again
            for path in self._built():
                os.utime(path, (0, 0))

    def build_extensions(self) -> None:
        """Build the library, then the extension linked to it."""
        compile_ = self.compiler.compile

        def compile_in_parallel(sources: list[str], **how: Any) -> list[str]:
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                made = pool.map(lambda source: compile_([source], **how), sources)
                return [one for objects in made for one in objects]

        self.compiler.compile = compile_in_parallel
        library = self._library()
        library.parent.mkdir(parents=True, exist_ok=True)
        objects = self.compiler.compile(
            files(ENGINE, "*.c"),
            output_dir=self.build_temp,
            include_dirs=[ENGINE, f"{ENGINE}/include"],
            extra_postargs=COMPILE,
            depends=files(ENGINE, "*.h"),
        )
        self.compiler.link_shared_object(
            objects,
            str(library),
            libraries=["dl", "m", "pthread"],
            extra_postargs=[*LINK, f"-Wl,-soname,{LIBRARY}", f"-Wl,--version-script,{ROOT / SYMBOLS}"],
        )
        library.with_name(LINKED).write_text(f"/* GNU ld script */\nINPUT({LIBRARY})\n", encoding="utf-8")
        for extension in self.extensions:
            extension.library_dirs.append(str(library.parent))
        super().build_extensions()

    def copy_extensions_to_source(self) -> None:
        """Copy both into the checkout, for an editable installation."""
        super().copy_extensions_to_source()
        # a process that has the old file mapped keeps it
        for name in (LIBRARY, LINKED):
            fresh = ROOT / "runtime" / f"{name}.new"
            shutil.copyfile(self._library().with_name(name), fresh)
            fresh.replace(ROOT / "runtime" / name)

    def get_outputs(self) -> list[str]:
        """List what a build writes."""
        return [*super().get_outputs(), *(str(self._library().with_name(name)) for name in (LIBRARY, LINKED))]

    def _are_current(self) -> bool:
        if self.force or _has_flags():
            return False
        built = self._built()
        # the time of a folder tells of files that were removed
        read = [
            ROOT / "setup.py",
            *(path for folder in (ENGINE, BINDING) for path in [ROOT / folder, *(ROOT / folder).rglob("*")]),
        ]
        return all(path.exists() for path in built) and max(map(_time, read)) < min(map(_time, built))

    def _built(self) -> list[Path]:
        """List what an editable installation puts into the checkout."""
        return [
            Path(self.get_ext_fullpath("nojit.runtime._core")),
            *(ROOT / "runtime" / name for name in (LIBRARY, LINKED)),
        ]

    def _library(self) -> Path:
        return Path(self.build_lib) / "nojit" / "runtime" / LIBRARY


def _has_flags() -> bool:
    return any(os.environ.get(name) for name in ("CC", "CFLAGS", "CPPFLAGS", "LDFLAGS"))


def _time(path: Path) -> float:
    return path.stat().st_mtime


setup(
    packages=packages(),
    cmdclass={"build_ext": BuildBoth},
    ext_modules=[
        Extension(
            "nojit.runtime._core",
            files(BINDING, "*.c"),
            include_dirs=[BINDING, ENGINE, f"{ENGINE}/include"],
            depends=[*files(BINDING, "*.h"), *files(ENGINE, "*.h")],
            libraries=["nojit", "dl", "m", "pthread"],
            extra_compile_args=COMPILE,
            extra_link_args=[*LINK, "-Wl,-rpath,$ORIGIN"],
        )
    ],
)
