"""The environment variables of nojit, each with the modules that read it. docs/cli.md says what their values mean.

All of Python takes the names from here, except two scripts that import nojit only on demand: `runtime/autostart/sitecustomize.py` and
`aot/bench/start.py`. The engine in C spells them itself.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

__all__ = [
    "BATCH_INVARIANT",
    "BUNDLES",
    "CACHE",
    "CACHE_DIR",
    "CACHE_READONLY",
    "CACHE_SIGN",
    "CACHE_TRUST",
    "DEBUG_INFO",
    "EXECUTOR",
    "KEY_PASSWORD",
    "LIBCUDA",
    "LIBHIP",
    "MISS",
    "RECORD",
    "RECORD_FAKE",
    "SERVE",
    "SERVE_PRELOAD",
    "TRUST",
    "TRUSTED_KEYS",
    "TUNING",
]

# -- which bundles load, and whether they may --

BUNDLES: Final = "NOJIT_BUNDLES"
"""Bundles to find first: `runtime/discovery/discover.py`, `aot/cli/commands/doctor.py`."""
DEBUG_INFO: Final = "NOJIT_DEBUG_INFO"
"""Twins with line info: `runtime/loader.py`, `runtime/discovery/debug_twins.py`, `aot/inspect/doctor.py`."""
TRUST: Final = "NOJIT_TRUST"
"""Whether bundles must be signed: `runtime/loader.py`, `runtime/trust/policy.py`, `kernels/library.py`, `aot/cli/commands/doctor.py`,
`runtime/engine/api/bundle_trust.c`."""
TRUSTED_KEYS: Final = "NOJIT_TRUSTED_KEYS"
"""File of the keys that may sign: `runtime/loader.py`, `runtime/trust/policy.py`, `kernels/library.py`, `aot/cli/commands/doctor.py`."""

# -- which variant serves a call --

BATCH_INVARIANT: Final = "NOJIT_BATCH_INVARIANT"
"""Whether results may depend on the batch: `runtime/loader.py`, `runtime/tuning/batch_invariance.py`."""
TUNING: Final = "NOJIT_TUNING"
"""Tuned tables that replace those of bundles: `runtime/loader.py`, `runtime/tuning/overrides.py`, `aot/cli/commands/doctor.py`."""
MISS: Final = "NOJIT_MISS"
"""Whether Triton's JIT runs a call that no variant serves: `runtime/fallback/policy.py`, `runtime/serve/run.py`."""

# -- processes that are recorded or served --

RECORD: Final = "NOJIT_RECORD"
"""Folder of recordings: `runtime/recording/session.py`, `aot/cli/commands/record.py`, `runtime/autostart/sitecustomize.py`."""
RECORD_FAKE: Final = "NOJIT_RECORD_FAKE"
"""Arch of simulated GPUs: `runtime/recording/session.py`, `aot/cli/commands/record.py`, `runtime/autostart/sitecustomize.py`."""
SERVE: Final = "NOJIT_SERVE"
"""Bundles that serve functions of Triton: `runtime/serve/settings.py`, `runtime/serve/run.py`, `runtime/autostart/sitecustomize.py`."""
SERVE_PRELOAD: Final = "NOJIT_SERVE_PRELOAD"
"""Whether these are loaded at once: `runtime/serve/settings.py`, `runtime/serve/run.py`."""

# -- builds --

CACHE_DIR: Final = "NOJIT_CACHE_DIR"
"""Local cache: `aot/cache/folder.py`."""
CACHE: Final = "NOJIT_CACHE"
"""URL of the shared cache: `aot/cli/options/caches.py`."""
CACHE_READONLY: Final = "NOJIT_CACHE_READONLY"
"""Whether builds leave the shared cache as it is: `aot/cli/options/caches.py`."""
CACHE_SIGN: Final = "NOJIT_CACHE_SIGN"
"""Key that signs entries of the shared cache: `aot/cli/options/caches.py`."""
CACHE_TRUST: Final = "NOJIT_CACHE_TRUST"
"""Keys whose entries are taken: `aot/cli/options/caches.py`."""
EXECUTOR: Final = "NOJIT_EXECUTOR"
"""URL of the scheduler of a farm: `aot/cli/options/executors.py`."""
KEY_PASSWORD: Final = "NOJIT_KEY_PASSWORD"  # noqa: S105 - a name, no password
"""Password of a private key: `aot/cli/options/caches.py`, `aot/cli/commands/sign.py`."""

# -- drivers --

LIBCUDA: Final = "NOJIT_LIBCUDA"
"""File of NVIDIA's driver: `runtime/engine/cuda/calls.c`, `aot/bench/contenders.py`, `aot/bench/start.py`."""
LIBHIP: Final = "NOJIT_LIBHIP"
"""File of AMD's driver: `runtime/engine/hip/calls.c`."""
