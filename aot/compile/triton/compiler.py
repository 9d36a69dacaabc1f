"""The compiler of a build: compile one variant with Triton.

This package neither needs nor queries a GPU: kernels that ask Triton for the current target get the target of the build. Supports
Triton 3.6 to 3.9.
"""

from __future__ import annotations

import contextlib
import io
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import triton
from nojit.aot.backends.interface import Backend
from nojit.aot.backends.registry import vendor_of
from nojit.aot.compile.image_checks import check_compiled, checked_registers
from nojit.aot.compile.sources import reads
from nojit.aot.compile.toolchain.installed_triton import check_unnamed
from nojit.aot.compile.triton.ast_source import ast_source
from nojit.aot.compile.triton.failures import account_of
from nojit.aot.compile.triton.functions import find
from nojit.aot.compile.triton.keys import compiling_starts, given, reached_lines, resolved, variant_key, variant_keys
from nojit.aot.compile.triton.own_toolchain import archs, backend_of, gpu_target, min_driver, toolchain
from nojit.aot.compile.triton.param_layout import Leaf, layout_of, passed_of, tensor_maps_of
from nojit.aot.compile.triton.simulated_gpu import begin, current_target
from nojit.aot.compile.triton.source_facts import captured, describe, outline
from nojit.aot.plan.function_facts import SourcePlace
from nojit.aot.variants.variant import CompiledVariant, Variant
from nojit.runtime.errors import CompileError
from nojit.runtime.table.parts import Launch
from triton import knobs
from triton.compiler import ASTSource
from triton.tools.tensor_descriptor import TensorDescriptor

# a build calls all of these by this module's name, in other processes
__all__ = [
    "archs",
    "ast_source",
    "begin",
    "captured",
    "check_compiled",
    "compile_variant",
    "describe",
    "gpu_target",
    "min_driver",
    "of",
    "outline",
    "prepare",
    "toolchain",
    "toolchains",
    "tritons",
    "variant_key",
    "variant_keys",
    "version",
    "warm_up",
]

# before 3.9, Triton passes the shape of a padded 4-bit descriptor in values instead of the caller's units
_DOUBLES_SHAPES = tuple(map(int, triton.__version__.split(".")[:2])) < (3, 9)

toolchains: Final[tuple[str, ...]] = ()
"""No names: `nojit.aot.compile.by_toolchain` names toolchains."""
tritons: Final[tuple[tuple[str, str], ...]] = (("", triton.__version__),)
"""The version of Triton, under an empty name."""


def version() -> str:
    """Return the version of Triton."""
    return tritons[0][1]


def of(names: Sequence[str]) -> Any:
    """Return this module, as the compiler of the only toolchain.

    Raises:
        ManifestError: `names` is not empty.
    """
    check_unnamed(names)
    return sys.modules[__name__]


def prepare(asked: Iterable[tuple[SourcePlace, str]]) -> None:
    """Do nothing, since this compiler imports each source when it is needed; part of the planner's interface.

    `asked`: the sources, each with an arch.
    """


def compile_variant(variant: Variant, place: SourcePlace) -> CompiledVariant:
    """Compile one variant to machine code.

    `place`: where the kernel's source is.

    Raises:
        CompileError: Triton or its assembler failed; the attribute ``log`` of the error holds their output.
    """
    reads.stop()
    started = time.monotonic()
    where = f"{place.where}: {variant.label()}"
    # computed here, from the sources and the toolchain that this process compiles with
    (key,) = variant_keys((variant,), describe(place), place)
    compiling_starts()
    function, vendor = find(place), backend_of(variant.arch)
    log = io.StringIO()
    try:
        source = ast_source(variant, place)
        with (
            _quiet_triton(log, vendor, line_info=variant.line_info),
            current_target(variant.arch),
            vendor.assembling(variant.arch),
        ):
            compiled = triton.compile(
                source,
                target=gpu_target(variant.arch),
                options=given(resolved(variant.options, place), variant.arch),
            )
            image = bytes(compiled.asm[vendor_of(variant.arch).IMAGE])
    except Exception as error:
        account = account_of(error, reached_lines(variant, place))
        place_in_source = f"{account.where}, {where}" if account.where else where
        log_text = f"{account.log}\n{log.getvalue()}"
        raise CompileError("expected to compile", got=account.what, where=place_in_source, log=log_text) from error
    passed = passed_of([param.name for param in function.params], variant)
    launch = _launch(compiled.metadata, passed, variant.arch, where)
    return CompiledVariant(
        image=image,
        launch=launch,
        registers=checked_registers(image, launch, variant.arch, where),
        spill_bytes=vendor.spill_bytes(log.getvalue(), image),
        compile_ms=round((time.monotonic() - started) * 1000),
        key=key,
    )


@contextlib.contextmanager
def _quiet_triton(log: io.StringIO, vendor: Backend, *, line_info: bool) -> Iterator[None]:
    """Make Triton compile without its caches, into a temporary folder, and write its output to `log`."""
    folder = tempfile.mkdtemp(prefix="nojit-compile-")
    outer = tempfile.tempdir
    # Triton leaves temporary files behind when an assembler fails
    tempfile.tempdir = folder
    try:
        with knobs.compilation.scope(), knobs.cache.scope(), vendor.logging(), contextlib.redirect_stdout(log):
            # line info holds absolute source paths: two checkouts would give two images
            knobs.compilation.disable_line_info = not line_info
            knobs.compilation.always_compile = True
            knobs.compilation.store_binary_only = True
            knobs.cache.dir = folder
            # a custom cache manager could return images that this build did not compile
            knobs.cache.manager_class = knobs.cache.remote_manager_class = None
            yield
    finally:
        tempfile.tempdir = outer
        shutil.rmtree(folder, ignore_errors=True)


@triton.jit  # type: ignore[untyped-decorator]
def _nothing() -> None:
    pass


def warm_up(arch: str) -> None:
    """Compile an empty kernel, so that forks of this process inherit Triton's one-time initialization."""
    # the first variant reports any problem of the toolchain
    with (
        contextlib.suppress(Exception),
        reads.own_work(),
        _quiet_triton(io.StringIO(), backend_of(arch), line_info=False),
        current_target(arch),
    ):
        source = ASTSource(_nothing, {}, {}, {})
        triton.compile(source, target=gpu_target(arch), options={"enable_fp_fusion": True})


def _launch(metadata: Any, passed: Sequence[Leaf], arch: str, where: str) -> Launch:
    # None for a target without tensor maps
    descriptors = metadata.tensordesc_meta
    if descriptors and _DOUBLES_SHAPES and any(entry["fp4_padded"] for entry in descriptors):
        # the kernel would read a shape in other units than the runtime passes
        raise CompileError(
            "expected Triton 3.9 or later for padded 4-bit descriptors: pip install --upgrade triton",
            got=triton.__version__,
            where=where,
        )
    try:
        tensor_maps = tensor_maps_of(passed, descriptors) if descriptors else ()
    except ValueError as error:
        raise CompileError(str(error), where=where) from None
    return Launch(
        symbol=metadata.name,
        layout=layout_of(
            passed,
            tensor_maps=bool(tensor_maps),
            rounds_tf32="round_f32_to_tf32" in TensorDescriptor.__dataclass_fields__,
        ),
        num_warps=metadata.num_warps,
        num_ctas=metadata.num_ctas,
        shared_bytes=metadata.shared,
        global_scratch_bytes=metadata.global_scratch_size,
        global_scratch_align=metadata.global_scratch_align,
        profile_scratch_bytes=metadata.profile_scratch_size or 0,
        profile_scratch_align=metadata.profile_scratch_align or 1,
        cooperative=metadata.launch_cooperative_grid,
        pdl=backend_of(arch).overlaps(arch) and metadata.launch_pdl,
        tensor_maps=tensor_maps,
    )
