"""Writes the kernels and the manifest of a file of pointwise operators.

    python -m nojit.kernels.pointwise SPECS [--out FOLDER]

writes ``<stem>_kernels.py`` and ``<stem>.toml`` beside one another, for ``nojit build``. Without SPECS it writes those that
ship, of this checkout.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from nojit.kernels.pointwise.manifests import write_manifest
from nojit.kernels.pointwise.source import write_source
from nojit.kernels.pointwise.spec import read_specs

__all__ = ["generate", "generate_own", "main"]

_HERE = Path(__file__).resolve().parent


def generate(specs: Path) -> dict[str, str]:
    """Return the text of each file that comes of a file of specs, by name.

    Raises:
        ManifestError: the specs do not fit.
        OSError: they cannot be read.
    """
    file = read_specs(specs)
    module = f"{specs.stem}_kernels.py"
    manifest = write_manifest(file, module, specs.name)
    return {module: write_source(file.operators, specs.name), f"{specs.stem}.toml": manifest}


def generate_own() -> dict[Path, str]:
    """Return the text of the kernels and the manifest that ship, by path."""
    specs = _HERE / "operators.toml"
    file = read_specs(specs)
    origin = f"kernels/pointwise/{specs.name}"
    manifest = write_manifest(file, "nojit.kernels.pointwise.kernel", origin)
    return {
        _HERE / "kernel.py": write_source(file.operators, origin),
        _HERE.parents[1] / "manifests/pointwise.toml": manifest,
    }


def main() -> None:
    """Write the files that the command line asks for."""
    parser = argparse.ArgumentParser(
        "python -m nojit.kernels.pointwise",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("specs", type=Path, nargs="?")
    parser.add_argument("--out", type=Path, default=Path(), metavar="FOLDER")
    given = parser.parse_args()
    if given.specs is None:
        files = generate_own()
    else:
        files = {given.out / name: text for name, text in generate(given.specs).items()}
        if any(path.resolve() == given.specs.resolve() for path in files):
            parser.error("expected another folder than that of the specs: the manifest has their name")
        given.out.mkdir(parents=True, exist_ok=True)
    for path, text in files.items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
