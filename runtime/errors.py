"""The errors of nojit that a caller can handle.

::

    NojitError
    +-- ManifestError        (ValueError)    a manifest cannot be built
    +-- CompileError         (RuntimeError)  Triton or ptxas failed on a variant
    +-- PackageError         (RuntimeError)  a bundle or wheel could not be written
    +-- RegistryError        (RuntimeError)  a registry or layout folder refused, failed or is not what was expected
    +-- TuningError          (ValueError)    a tuned table is wrong, or does not fit the bundle's kernel
    +-- SettingError         (ValueError)    an environment variable has an invalid value
    +-- RecordingError       (ValueError)    a recording cannot be read or written
    +-- BundleError          (ValueError)
    |   +-- BundleFormatError                the file breaks a rule of the format
    |   +-- BundleIntegrityError             the file was changed or damaged after the build
    |   +-- BundleTrustError                 the policy requires a signature that the bundle lacks
    +-- KernelNotFoundError  (LookupError)   no bundle holds the kernel
    +-- NoMatchingVariantError (LookupError) no variant of the kernel matches the call
    +-- ArgumentError        (TypeError)     the kernel cannot take an argument
    +-- DriverError          (RuntimeError)  a call of the GPU's driver failed
    +-- FakeValueError       (RuntimeError)  a program on a simulated GPU asked for what only a real one computes

Messages give the expected value, the found one and the place, in lower case. These facts are attributes too, and every error can be
pickled, so an error of a worker process arrives complete.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Self

__all__ = [
    "ArgumentError",
    "BundleError",
    "BundleFormatError",
    "BundleIntegrityError",
    "BundleTrustError",
    "CompileError",
    "DriverError",
    "FakeValueError",
    "KernelNotFoundError",
    "ManifestError",
    "NoMatchingVariantError",
    "NojitError",
    "PackageError",
    "RecordingError",
    "RegistryError",
    "SettingError",
    "StreamWarning",
    "TuningError",
]


class NojitError(Exception):
    """Base of nojit's errors: ``what`` failed or was expected, ``got`` instead, and ``where``.

    Attributes:
        what: what was expected, or what failed.
        got: what was found instead, as text; empty if `what` says it.
        where: a file, a key path or a kernel; empty if there is no such place.
        advice: what to do next, at the end of the message; empty if `what` says it.
    """

    def __init__(self, what: str, *, got: str = "", where: str = "") -> None:
        self.what = what
        self.got = got
        self.where = where
        super().__init__(what)

    advice = ""

    def __str__(self) -> str:
        return f"{self.finding()}; {self.advice}" if self.advice else self.finding()

    def finding(self) -> str:
        """The message without the advice."""
        text = self.what
        if self.got:
            text += f", got {self.got}"
        if self.where:
            text += f" - at {self.where}"
        return text

    def advise(self, advice: str) -> Self:
        """Set the advice; return the error."""
        self.advice = advice
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        # Exception would call the class with `args` only, and lose the keywords
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(cls: type[NojitError], args: tuple[Any, ...], state: dict[str, Any]) -> NojitError:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class ManifestError(NojitError, ValueError):
    """A manifest, or a source that it names, cannot be built.

    Attributes:
        file: the manifest; empty if the mistake is not in a file.
        line: from 1; 0 if there is none.
        column: in characters, from 1; 0 if there is none.
        key: the key path, ``$.kernel[0].params.n``.
    """

    def __init__(
        self,
        what: str,
        *,
        got: str = "",
        where: str = "",
        file: str = "",
        line: int = 0,
        column: int = 0,
        key: str = "",
    ) -> None:
        if file:
            where = f"{file}:{line}:{column} {key}".rstrip() if line else file
        super().__init__(what, got=got, where=where)
        self.file = file
        self.line = line
        self.column = column
        self.key = key
        self._found: tuple[NojitError, ...] = ()

    @classmethod
    def of(cls, mistakes: Sequence[NojitError]) -> ManifestError:
        """Return one error for several mistakes."""
        error = cls(f"{len(mistakes)} mistakes")
        error._found = tuple(mistakes)
        return error

    @property
    def mistakes(self) -> tuple[NojitError, ...]:
        """Every mistake of the run, in order of file and line; the error itself if it is the only one."""
        return self._found or (self,)

    def __str__(self) -> str:
        return "\n".join([super().__str__(), *(f"  {mistake}" for mistake in self._found)])


class CompileError(NojitError, RuntimeError):
    """Triton or ptxas rejected a variant, crashed on it, or took too long.

    Attributes:
        log: output of the compiler, possibly many lines.
    """

    def __init__(self, what: str, *, got: str = "", where: str = "", log: str = "") -> None:
        super().__init__(what, got=got, where=where)
        self.log = log


class PackageError(NojitError, RuntimeError):
    """A bundle or a wheel could not be written."""


class RegistryError(NojitError, RuntimeError):
    """A release could not be pushed to a registry, pulled from it, saved or loaded.

    Attributes:
        reason: short name of the reason, as in ``docs/registry.md``.
    """

    def __init__(self, what: str, *, got: str = "", where: str = "", reason: str = "") -> None:
        super().__init__(what, got=got, where=where)
        self.reason = reason


class TuningError(NojitError, ValueError):
    """A tuned table is invalid, or uses something that its kernel lacks."""


class SettingError(NojitError, ValueError):
    """An environment variable has an invalid value."""


class RecordingError(NojitError, ValueError):
    """A recording cannot be read, merged or written."""


class BundleError(NojitError, ValueError):
    """A bundle cannot be used."""


_COPY_OR_REBUILD = "copy the file again, or rebuild it with nojit build"


class BundleFormatError(BundleError):
    """The file breaks a rule of the format.

    Attributes:
        rule: short name of the rule, as in ``docs/bundle-format.md``.
    """

    def __init__(self, what: str, *, got: str = "", where: str = "", rule: str = "") -> None:
        super().__init__(what, got=got, where=where)
        self.rule = rule
        self.advice = "update nojit, or rebuild the bundle" if rule == "version" else _COPY_OR_REBUILD


class BundleIntegrityError(BundleError):
    """The file was changed or damaged after the build: a hash differs, or a part is missing."""

    advice = _COPY_OR_REBUILD


_SIGN_AGAIN = "copy the signed statement again, or sign the bundle with nojit sign"
_TRUST_ADVICE = {
    "unsigned": "sign the bundle with nojit sign, or copy its signed statement beside it",
    "envelope": _SIGN_AGAIN,
    "unknown-key": "sign the bundle with a trusted key",
    "signature": _SIGN_AGAIN,
    "statement": _SIGN_AGAIN,
    "other-bundle": "copy the bundle and its signed statement again, or sign the bundle with nojit sign",
    "key-scope": "sign the bundle with a key that may sign this name",
    "rolled-back": "deploy a newer release",
}


class BundleTrustError(BundleError):
    """The policy requires a signature, and the bundle has none or an unsuitable one.

    Attributes:
        reason: short name of the reason, as in ``docs/trust.md``.
    """

    def __init__(self, what: str, *, got: str = "", where: str = "", reason: str = "") -> None:
        super().__init__(what, got=got, where=where)
        self.reason = reason
        self.advice = _TRUST_ADVICE.get(reason, "")


class KernelNotFoundError(NojitError, LookupError):
    """No bundle holds a kernel of that name."""


class NoMatchingVariantError(NojitError, LookupError):
    """No variant of the kernel matches the call.

    Attributes:
        reasons: label and reason of each variant that nearly matches.
    """

    def __init__(self, what: str, *, got: str = "", where: str = "", reasons: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__(what, got=got, where=where)
        self.reasons = reasons

    def __str__(self) -> str:
        lines = [super().__str__()]
        lines += [f"  {label}: {reason}" for label, reason in self.reasons]
        return "\n".join(lines)


class ArgumentError(NojitError, TypeError):
    """The kernel cannot take an argument.

    Attributes:
        argument: name of the argument; empty if the whole call is wrong.
    """

    def __init__(self, what: str, *, got: str = "", where: str = "", argument: str = "") -> None:
        super().__init__(what, got=got, where=where)
        self.argument = argument


class DriverError(NojitError, RuntimeError):
    """A call of the GPU's driver failed.

    Attributes:
        call: function of the driver, such as ``cuLaunchKernel`` or ``hipModuleLaunchKernel``.
        code: its ``CUresult`` or ``hipError_t``.
        name: name of the code, such as ``CUDA_ERROR_OUT_OF_MEMORY`` or ``hipErrorOutOfMemory``.
    """

    def __init__(self, call: str, code: int, name: str, *, what: str = "", where: str = "") -> None:
        super().__init__(what or f"{call} failed", got=f"{name} ({code})", where=where)
        self.call = call
        self.code = code
        self.name = name


class FakeValueError(NojitError, RuntimeError):
    """A program on a simulated GPU asked for a value, a time or a feature that only a real GPU has.

    Attributes:
        where: the line of the program, ``serve.py:12``.
    """


class StreamWarning(UserWarning):
    """Warning that a kernel runs on the default stream, because the call does not show which stream is current."""
