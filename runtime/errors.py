"""The error tree: every failure of nojit that a caller can act on.

::

    NojitError
    +-- ManifestError        (ValueError)    a manifest says something that cannot be built
    +-- CompileError         (RuntimeError)  Triton or ptxas refused a variant
    +-- PackageError         (RuntimeError)  a bundle or wheel could not be written
    +-- TuningError          (ValueError)    a tuned table is wrong, or for another kernel than there is
    +-- SettingError         (ValueError)    an environment variable says what it cannot
    +-- BundleError          (ValueError)
    |   +-- BundleFormatError                the bytes break a rule of the format
    |   +-- BundleIntegrityError             the bytes are not the ones that were built
    |   +-- BundleTrustError                 the policy asks for a signature that is not there, or not right
    +-- KernelNotFoundError  (LookupError)   no bundle at hand holds that kernel
    +-- NoMatchingVariantError (LookupError) the kernel is there, no variant serves this call
    +-- ArgumentError        (TypeError)     an argument the kernel cannot take
    +-- DriverError          (RuntimeError)  a CUDA driver call failed

Messages say what was expected, what was got and where, in lower case. The same facts are attributes, and every error
pickles, so that one raised in a worker process arrives whole.
"""

from __future__ import annotations

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
    "KernelNotFoundError",
    "ManifestError",
    "NoMatchingVariantError",
    "NojitError",
    "PackageError",
    "SettingError",
    "StreamWarning",
    "TuningError",
    "counted",
    "did_you_mean",
    "few",
    "key_among",
    "nearest_or_few",
    "shown",
    "told",
    "typed",
    "worded",
]


class NojitError(Exception):
    """The root: ``what`` went wrong, ``got`` instead, and ``where``.

    Attributes:
        what: what was expected, or what failed.
        got: what was found instead, already in words; empty if that says nothing.
        where: a file, a key path, a kernel; empty if there is no such place.
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
        """Return the message without the advice."""
        text = self.what
        if self.got:
            text += f", got {self.got}"
        if self.where:
            text += f" - at {self.where}"
        return text

    def advise(self, advice: str) -> Self:
        """Set the advice, and return the error."""
        self.advice = advice
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        # Exception would call the class with `args` alone and lose the keywords
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(cls: type[NojitError], args: tuple[Any, ...], state: dict[str, Any]) -> NojitError:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class ManifestError(NojitError, ValueError):
    """A manifest, or the source that it names, says something that cannot be built.

    Attributes:
        file: the manifest; empty if the mistake stands in no file.
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
        """Every mistake that the run found, in order of file and line; the error itself if it is the only one."""
        return self._found or (self,)

    def __str__(self) -> str:
        return "\n".join([super().__str__(), *(f"  {mistake}" for mistake in self._found)])


class CompileError(NojitError, RuntimeError):
    """Triton or ptxas refused a variant, crashed on it, or took too long.

    Attributes:
        log: the compiler's own words, possibly many lines.
    """

    def __init__(self, what: str, *, got: str = "", where: str = "", log: str = "") -> None:
        super().__init__(what, got=got, where=where)
        self.log = log


class PackageError(NojitError, RuntimeError):
    """A bundle or a wheel could not be written."""


class TuningError(NojitError, ValueError):
    """A tuned table says something wrong, or something that the kernel it is for does not know."""


class SettingError(NojitError, ValueError):
    """An environment variable says something that it cannot."""


class BundleError(NojitError, ValueError):
    """A bundle cannot be used."""


_COPY_OR_REBUILD = "copy the file again, or rebuild it with nojit build"


class BundleFormatError(BundleError):
    """The bytes break a rule of the format.

    Attributes:
        rule: the short name of the rule, as in ``docs/bundle-format.md``.
    """

    def __init__(self, what: str, *, got: str = "", where: str = "", rule: str = "") -> None:
        super().__init__(what, got=got, where=where)
        self.rule = rule
        self.advice = "update nojit, or rebuild the bundle" if rule == "version" else _COPY_OR_REBUILD


class BundleIntegrityError(BundleError):
    """The bytes are not the ones that were built: a hash differs, or something is missing."""

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
    """The policy asks for signed bundles, and this one is not signed as it wants.

    Attributes:
        reason: the short name of the refusal, as in ``docs/trust.md``.
    """

    def __init__(self, what: str, *, got: str = "", where: str = "", reason: str = "") -> None:
        super().__init__(what, got=got, where=where)
        self.reason = reason
        self.advice = _TRUST_ADVICE.get(reason, "")


class KernelNotFoundError(NojitError, LookupError):
    """No bundle at hand holds a kernel of that name."""


class NoMatchingVariantError(NojitError, LookupError):
    """The kernel is there, but no variant of it serves this call.

    Attributes:
        reasons: for each near miss, the variant's label and why it does not serve.
    """

    def __init__(self, what: str, *, got: str = "", where: str = "", reasons: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__(what, got=got, where=where)
        self.reasons = reasons

    def __str__(self) -> str:
        lines = [super().__str__()]
        lines += [f"  {label}: {reason}" for label, reason in self.reasons]
        return "\n".join(lines)


class ArgumentError(NojitError, TypeError):
    """An argument that the kernel cannot take.

    Attributes:
        argument: its name; empty if the call as a whole is wrong.
    """

    def __init__(self, what: str, *, got: str = "", where: str = "", argument: str = "") -> None:
        super().__init__(what, got=got, where=where)
        self.argument = argument


class DriverError(NojitError, RuntimeError):
    """A CUDA driver call failed.

    Attributes:
        call: the function of ``cuda.h``, ``cuLaunchKernel`` say.
        code: its ``CUresult``.
        name: the code's name, ``CUDA_ERROR_OUT_OF_MEMORY`` say.
    """

    def __init__(self, call: str, code: int, name: str, *, what: str = "", where: str = "") -> None:
        super().__init__(what or f"{call} failed", got=f"{name} ({code})", where=where)
        self.call = call
        self.code = code
        self.name = name


class StreamWarning(UserWarning):
    """A kernel is launched on the default stream, since nothing in the call says which stream is current."""


def did_you_mean(word: str, known: list[str] | tuple[str, ...]) -> str:
    """Say which of `known` is spelled nearest to `word`, as the end of a message; empty if none is near."""
    import difflib  # noqa: PLC0415 - only an error pays for it

    near = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    return f"; did you mean {near[0]!r}?" if near else ""


_BYTES = "pass its bytes, tensor.view(torch.uint8), to a param of type '*u8'"
_OTHER_DTYPES = (
    (("float8_e8m0", "float4", "float6", "bits"), _BYTES),
    (("complex",), "pass its parts, torch.view_as_real(tensor)"),
    (("qint", "quint"), "pass its ints, tensor.int_repr()"),
)


def no_dtype(name: str, known: list[str] | tuple[str, ...]) -> str:
    """Word that Triton has no such dtype, with what to pass instead, or which of `known` is spelled nearest."""
    # what a framework puts before it is not part of the name
    bare = name.rpartition(".")[2]
    advice = next((f"; {what}" for starts, what in _OTHER_DTYPES if bare.startswith(starts)), "")
    return f"Triton has no dtype {name}{advice or did_you_mean(bare, known)}"


def nearest_or_few(word: str, known: tuple[str, ...]) -> str:
    """Say which of `known` is spelled nearest to `word`, or, if none is near, which there are: the first eight; empty if there are none."""
    there = f"; there {'is' if len(known) == 1 else 'are'} {few(known, 8)}" if known else ""
    return did_you_mean(word, known) or there


def counted(number: int, noun: str) -> str:
    """Spell a count: ``1 variant``, ``1,204 variants``."""
    return f"{number:,} {noun if number == 1 else noun + 's'}"


def few(names: Sequence[str], most: int) -> str:
    """List names, of more than `most` the first ones and how many follow."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def key_among(keys: Sequence[str]) -> str:
    """Word which keys a table may have, for a message: ``one of the keys name, source``, or ``the key when``."""
    return f"{'the key' if len(keys) == 1 else 'one of the keys'} {', '.join(keys)}"


def shown(value: object) -> str:
    """Write a value for a message: the type alone where Python does not write it, an int of more than 4,300 digits say."""
    try:
        return repr(value)
    except ValueError:
        return type(value).__name__


def typed(value: object) -> str:
    """Write a value for a message behind its type, ``int 3``; as `shown`."""
    text, name = shown(value), type(value).__name__
    return name if text == name else f"{name} {text}"


def told(error: Exception) -> str:
    """Say what failed; of a call to the system without its number, and also where."""
    if not isinstance(error, OSError) or not error.strerror or error.filename is None:
        return worded(error)
    import os  # noqa: PLC0415 - as above

    # a call by a file's number has that for a name
    name = error.filename
    return f"{error.strerror} - at {os.fsdecode(name) if isinstance(name, str | bytes) else name}"


def worded(error: Exception) -> str:
    """Say what went wrong; of a call to the system neither its number nor its path, which a message says elsewhere."""
    if isinstance(error, UnicodeDecodeError):
        return f"byte 0x{error.object[error.start]:02x} at offset {error.start}, which is no UTF-8"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
