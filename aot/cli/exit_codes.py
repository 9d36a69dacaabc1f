"""Exit codes of the commands, and the code of each error.

==== ==================================================================
0    done
1    failed
2    wrong usage
3    a bundle does not verify
4    nothing matches this GPU
130  interrupted (143 if by SIGTERM)
==== ==================================================================

Click itself exits with 0 and 2.
"""

from __future__ import annotations

from nojit.runtime.errors import (
    BundleFormatError,
    BundleIntegrityError,
    BundleTrustError,
    NoMatchingVariantError,
    RegistryError,
)

__all__ = ["EXIT_FAILED", "EXIT_INTERRUPTED", "EXIT_NO_MATCH", "EXIT_TERMINATED", "EXIT_UNVERIFIED", "exit_code"]

EXIT_FAILED = 1
EXIT_UNVERIFIED = 3
EXIT_NO_MATCH = 4
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143


def exit_code(error: Exception) -> int:
    """Return the exit code for an error."""
    if isinstance(error, BundleTrustError) and error.reason == "policy":
        # keys that cannot be read, or nothing to check with: no bundle was looked at
        return EXIT_FAILED
    if isinstance(error, BundleFormatError | BundleIntegrityError | BundleTrustError):
        return EXIT_UNVERIFIED
    if isinstance(error, RegistryError):
        return {"arch": EXIT_NO_MATCH, "digest": EXIT_UNVERIFIED}.get(error.reason, EXIT_FAILED)
    return EXIT_NO_MATCH if isinstance(error, NoMatchingVariantError) else EXIT_FAILED
