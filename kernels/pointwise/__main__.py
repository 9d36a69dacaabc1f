"""Command that generates the kernels and the manifest of pointwise operators from a file of specs.

    python -m nojit.kernels.pointwise SPECS [--out FOLDER]

writes ``<stem>_kernels.py`` and ``<stem>.toml`` into FOLDER, for ``nojit build``, where ``<stem>`` is the name of SPECS
without its ending. Without SPECS it rewrites the kernels and the manifest of this checkout.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from nojit.kernels.pointwise.manifests import write_manifest
from nojit.kernels.pointwise.source import write_source
from nojit.kernels.pointwise.spec import read_specs
from nojit.runtime.errors import ManifestError

__all__ = ["generate", "generate_own", "main"]

_HERE = Path(__file__).resolve().parent
_CHECKOUT = _HERE.parents[1]


def generate(specs: Path) -> dict[str, str]:
    """Return the texts of the files generated from a file of specs, by file name.

    Raises:
        ManifestError: a spec is invalid.
        OSError: the file cannot be read.
    """
    file = read_specs(specs)
    module = f"{specs.stem}_kernels.py"
    manifest = write_manifest(file, module, specs.name)
    return {module: write_source(file.operators, specs.name), f"{specs.stem}.toml": manifest}


def generate_own() -> dict[Path, str]:
    """Return the texts of the library's own kernels and manifest, by path."""
    specs = _HERE / "operators.toml"
    file = read_specs(specs)
    origin = f"kernels/pointwise/{specs.name}"
    manifest = write_manifest(file, "nojit.kernels.pointwise.kernel_generated", origin)
    return {
        _HERE / "kernel_generated.py": write_source(file.operators, origin),
        _CHECKOUT / "manifests/pointwise.toml": manifest,
    }


def main() -> None:
    """Run the command line: write the generated files; exit with 1 on an error."""
    parser = argparse.ArgumentParser(
        "python -m nojit.kernels.pointwise",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("specs", type=Path, nargs="?")
    parser.add_argument("--out", type=Path, default=Path(), metavar="FOLDER")
    given = parser.parse_args()
    if given.specs is None and not (_CHECKOUT / "pyproject.toml").is_file():
        parser.error("expected SPECS: only a checkout can rewrite its own kernels without it")
    if given.specs is not None and (given.out / f"{given.specs.stem}.toml").resolve() == given.specs.resolve():
        parser.error("expected --out to be another folder: the manifest would overwrite the specs, which have its name")
    try:
        files = generate_own() if given.specs is None else _placed(given.specs, given.out)
        for path, text in files.items():
            _write(path, text)
    except ManifestError as error:
        parser.exit(1, f"error: {error}\n")
    except OSError as error:
        parser.exit(1, f"error: {error.strerror or error} - at {error.filename or given.specs}\n")


def _placed(specs: Path, folder: Path) -> dict[Path, str]:
    """Return the texts generated from a file of specs, by path in `folder`, which is created."""
    files = generate(specs)
    folder.mkdir(parents=True, exist_ok=True)
    return {folder / name: text for name, text in files.items()}


def _write(path: Path, text: str) -> None:
    """Write a file atomically: a reader sees the old or the new text."""
    with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as beside:
        made = Path(beside, path.name)
        made.write_text(text, encoding="utf-8")
        made.replace(path)


if __name__ == "__main__":
    main()
