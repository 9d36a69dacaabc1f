"""Build nojit-autoserve: setuptools has no setting for a file at the top of ``site-packages``."""

from __future__ import annotations

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

HOOK = "nojit-autoserve.pth"


class BuildWithHook(build_py):
    """Put the ``.pth`` file beside the module."""

    def run(self) -> None:
        """Build both."""
        super().run()
        self.copy_file(HOOK, str(Path(self.build_lib) / HOOK))

    def get_source_files(self) -> list[str]:
        """List what a source distribution needs."""
        return [*super().get_source_files(), HOOK]

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        """List what a build writes."""
        return [*super().get_outputs(include_bytecode), str(Path(self.build_lib) / HOOK)]


setup(cmdclass={"build_py": BuildWithHook})
