"""Bundles of the benchmarks: built on the spot if Triton is installed, or built elsewhere and passed in."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

from nojit.aot.base.files import check_folder
from nojit.aot.bench import children
from nojit.aot.inspect.doctor import probe_driver
from nojit.aot.manifest.archs import check_arch
from nojit.runtime.bundle.format import SUFFIX
from nojit.runtime.errors import BundleError, NojitError
from nojit.runtime.target import spell_arch

__all__ = ["LAUNCH", "build", "cold_name", "cold_source", "device_arch", "find"]

LAUNCH = "nojit-bench-launch"
_LAUNCH_MANIFEST = Path(__file__).with_name("launch.toml")
_VERSION = "1"

_HEAD = """schema = 1

[bundle]
name = "{name}"
version = "{version}"
archs = ["{arch}"]
"""
_ENTRY = """
[[kernel]]
name = "{kernel}"
source = "{source}:{kernel}"
grid = ["cdiv(n, BLOCK)"]
params = {{ x_ptr = "*fp32", out_ptr = "*fp32", n = "i32" }}
configs = [{{ BLOCK = 1024, num_warps = 4 }}]
"""
_IMPORTS = "import triton\nimport triton.language as tl\n"
_FUNCTION = """

@triton.jit
def {kernel}(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    lanes = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = lanes < n
    tl.store(out_ptr + lanes, tl.load(x_ptr + lanes, mask=mask) * {number}.25 + {number}.5, mask=mask)
"""


def cold_name(kernels: int) -> str:
    """Return the name of the bundle with `kernels` small kernels."""
    return f"nojit-bench-cold-{kernels}"


def cold_source(folder: Path, kernels: int) -> Path:
    """Write `kernels` different small kernels as Triton source; return the file."""
    path = folder / f"cold_{kernels}.py"
    functions = (_FUNCTION.format(kernel=f"cold_{number}", number=number) for number in range(kernels))
    path.write_text(_IMPORTS + "".join(functions), encoding="utf-8")
    return path


def _cold_manifest(folder: Path, kernels: int, arch: str) -> Path:
    source = cold_source(folder, kernels)
    entries = (_ENTRY.format(kernel=f"cold_{number}", source=source.name) for number in range(kernels))
    path = folder / f"cold_{kernels}.toml"
    head = _HEAD.format(name=cold_name(kernels), version=_VERSION, arch=arch)
    path.write_text(head + "".join(entries), encoding="utf-8")
    return path


def device_arch() -> str:
    """Return the arch of the first device.

    Raises:
        NojitError: no driver or device was found, or the device is too old.
    """
    driver = probe_driver()
    if not driver.devices:
        raise NojitError("expected a GPU to measure on", got=driver.problem)
    return check_arch(spell_arch(driver.devices[0]), "device 0")


def build(folder: Path, arch: str, counts: Iterable[int] = (), *, launch: bool = False) -> None:
    """Build bundles into `folder` with `nojit build`, in a child process.

    Args:
        folder: the output folder.
        arch: the arch to build for.
        counts: numbers of small kernels; one bundle for each number.
        launch: also build the kernels of `nojit bench launch`.

    Raises:
        NojitError: Triton is not installed, or the build fails.
        PackageError: the folder is not writable.
    """
    if find_spec("triton") is None:
        raise NojitError("expected Triton, which builds the measured kernels: pip install 'nojit[build]'")
    check_folder(folder)
    sources = folder / "sources"
    sources.mkdir(parents=True, exist_ok=True)
    manifests = [_cold_manifest(sources, count, arch) for count in counts]
    manifests += [_LAUNCH_MANIFEST] if launch else []
    words = ["-m", "nojit", "build", *map(str, manifests), "--arch", arch, "--out", str(folder), "-q"]
    children.run(words, "the build of the measured kernels")


def find(place: Path, name: str, arch: str) -> Path:
    """Return the path of a benchmark bundle: `place` if it is a file, else the match in that folder.

    Raises:
        BundleError: the folder does not hold exactly one such bundle.
    """
    if place.is_file():
        return place
    found = sorted(place.glob(f"{name}-*{SUFFIX}"))
    wanted = [path for path in found if path.name.endswith(f"-{arch}{SUFFIX}")]
    if len(wanted) != 1:
        names = ", ".join(path.name for path in wanted or found) or "none"
        advice = "`nojit clean` deletes older ones" if wanted else f"build it with `nojit bench bundles --arch {arch}`"
        raise BundleError(f"expected one bundle {name} for {arch}: {advice}", got=names, where=str(place))
    return wanted[0]
