"""Entry points with which installed distributions declare their bundles."""

from __future__ import annotations

import re

from nojit.runtime.base.frozen_record import Record
from nojit.runtime.base.wording import worded
from nojit.runtime.errors import BundleError

__all__ = ["ENTRY_POINTS", "Provider", "normalized", "providers"]

# each entry point names a package whose folder contains bundles, and has the name that programs load
ENTRY_POINTS = "nojit.bundles"


class Provider(Record):
    """One entry point."""

    name: str
    """Name that programs load."""
    package: str
    """Package whose folder contains the bundles."""
    distribution: str
    """Distribution that declares the entry point."""
    place: str
    """Folder of the path in which the distribution is installed."""


def normalized(name: str) -> str:
    """Return a name in the form in which names are compared: without case, with ``-``, ``_`` and ``.`` as one."""
    return re.sub(r"[-_.]+", "-", name).lower()


def providers() -> list[Provider]:
    """List the entry points of the distributions on ``sys.path``, by name, distribution and package.

    If the path has several distributions of one name, the first counts.

    Raises:
        BundleError: an entry point cannot be read.
    """
    from importlib.metadata import entry_points  # slow to import, and only loading by name needs it

    try:
        found = [
            # an object in the package, and extras, may follow its name
            Provider(
                point.name, re.split(r"[:\[]", point.value)[0].strip(), point.dist.name, str(point.dist.locate_file(""))
            )
            for point in entry_points(group=ENTRY_POINTS)
            if point.dist is not None
        ]
    except (TypeError, ValueError) as error:
        what = "expected installed distributions with readable entry points"
        raise BundleError(what, got=worded(error), where="entry_points.txt") from error
    return sorted(found, key=lambda one: (normalized(one.name), normalized(one.distribution), one.package))
