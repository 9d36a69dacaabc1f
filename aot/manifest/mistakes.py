"""Collector of mistakes in manifests, so that one command reports all of them at once.

A function with several checks catches each mistake and raises all together::

    mistakes = Mistakes()
    for name, spelling in params.items():
        with mistakes.caught():
            check(name, spelling)
    mistakes.raise_found()
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager

from nojit.aot.manifest.text import ManifestText
from nojit.runtime.errors import ManifestError, NojitError, TuningError

__all__ = ["Mistakes", "shorten"]


def shorten(value: object) -> str:
    """Return a value as TOML text for an error message, shortened if it is long."""
    text = str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


class Mistakes:
    """Collector of the mistakes that one command finds in manifests.

    Args:
        text: the manifest that the key paths of new mistakes refer to; None if there is no single manifest.
    """

    def __init__(self, text: ManifestText | None = None) -> None:
        self._text = text
        self._found: list[NojitError] = []

    def within(self, text: ManifestText) -> Mistakes:
        """Return a collector for one manifest; the mistakes that it collects are added to this collector as well."""
        inner = Mistakes(text)
        inner._found = self._found
        return inner

    def __contains__(self, place: str) -> bool:
        return any(
            isinstance(each, ManifestError) and each.key == place and self._is_here(each) for each in self._found
        )

    def __len__(self) -> int:
        return len(self._found)

    def add(self, what: str, *, got: str = "", at: str) -> None:
        """Add a mistake: the expected thing `what`, the found value `got`, and the key path `at`."""
        self._add(ManifestError(what, got=got, where=at))

    def keys_within(self, place: str) -> set[str]:
        """Return the keys of the table at `place` that have a mistake in their value or anywhere inside it.

        An empty key stands for a mistake of the table itself.
        """
        keys = (error.key for error in self._found if isinstance(error, ManifestError) and self._is_here(error))
        below = (key.removeprefix(place) for key in keys if key == place or key.startswith(f"{place}."))
        return {re.split(r"[.\[]", key.removeprefix("."))[0] for key in below}

    def _is_here(self, error: ManifestError) -> bool:
        return self._text is not None and error.file == str(self._text.path)

    def caught(self) -> AbstractContextManager[None, bool]:
        """Return a context manager that catches the mistake that its block raises and adds it to this collector.

        The rest of the block does not run; the program goes on after the block.
        """
        return _Catcher(self._add)

    def _add(self, error: NojitError) -> None:
        if isinstance(error, ManifestError) and len(error.mistakes) > 1:
            for mistake in error.mistakes:
                self._add(mistake)
            return
        if isinstance(error, ManifestError) and self._text is not None:
            error = self._text.located(error)
        # most mistakes occur once per arch, with the same message
        if str(error) not in map(str, self._found):
            self._found.append(error)

    def raise_found(self) -> None:
        """Raise all collected mistakes as one error, in order of file and line; return normally if there are none.

        Raises:
            ManifestError: there are mistakes; the attribute `mistakes` of the error lists them.
            TuningError: there is only one mistake, and it is in a tuned table.
        """
        if not self._found:
            return
        if len(self._found) == 1:
            raise self._found[0]
        raise ManifestError.of(sorted(self._found, key=_order))


class _Catcher:
    # a class: from a generator, type checkers would not know that the block may end early
    def __init__(self, add: Callable[[NojitError], None]) -> None:
        self._add = add

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, ManifestError | TuningError):
            return False
        self._add(error)
        return True


def _order(error: NojitError) -> tuple[str, int, int]:
    if isinstance(error, ManifestError):
        return error.file, error.line, error.column
    return error.where, 0, 0
