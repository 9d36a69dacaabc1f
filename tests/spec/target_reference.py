"""The generated part of docs/bundle-format.md that lists which device runs which image, for every pair."""

from __future__ import annotations

from collections.abc import Iterator

from nojit.runtime.target import ALONE, ARCHS, FAMILIES, FIRST_EXACT, ImageArch, arch_number, parse_image_arch

__all__ = ["IMAGES", "render_targets"]

DEVICES = tuple(map(arch_number, ARCHS))
EXACT, FAMILY, PLAIN, TEGRA = "exact", "family", "plain", "Tegra"


def _images() -> Iterator[str]:
    for arch, device in zip(ARCHS, DEVICES, strict=True):
        # ptxas has `a` and `f` from 9.0 and 10.0 on
        yield arch
        yield from (f"{arch}a",) if device >= FIRST_EXACT else ()
        yield from (f"{arch}f",) if len(FAMILIES.get(device, ())) > 1 else ()


IMAGES = tuple(_images())
"""Every kind of image for the known archs. Of `f` only those whose family has several chips."""


def _rule(image: ImageArch) -> str:
    if image.suffix == "a":
        return EXACT
    if image.number in ALONE:
        return TEGRA
    return FAMILY if image.suffix == "f" else PLAIN


def _spell(devices: list[int]) -> str:
    return ", ".join(f"{device // 10}.{device % 10}" for device in devices) or "-"


def render_targets() -> str:
    """Write a row for each image: the devices of its major version that run it, those that do not, and the rule."""
    lines = ["| image | runs on | of the same major version, not on | rule |\n", "|---|---|---|---|\n"]
    for name in IMAGES:
        image = parse_image_arch(name)
        runs = [device for device in DEVICES if image.runs_on(device)]
        others = [device for device in DEVICES if device // 10 == image.number // 10 and device not in runs]
        tegras = any(device in ALONE for device in others) and _rule(image) in {PLAIN, FAMILY}
        rule = f"{_rule(image)}, {TEGRA}" if tegras else _rule(image)
        lines.append(f"| `{name}` | {_spell(runs)} | {_spell(others)} | {rule} |\n")
    return "\n" + "".join(lines) + "\n"
