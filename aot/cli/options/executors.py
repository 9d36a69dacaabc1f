"""The machines that a command line or the environment names for compiling."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any, TypeVar

import click
from nojit.aot.cli.options.build_request import Request
from nojit.aot.remote.executor_url import dask_address
from nojit.runtime.base.environment import EXECUTOR

if TYPE_CHECKING:
    from nojit.aot.plan.compiler_interface import Compiler
    from nojit.aot.remote.executor import RemoteExecutor

__all__ = ["executor_option", "given_executor", "open_remote"]

F = TypeVar("F", bound=Callable[..., Any])


def _address(_context: click.Context, _param: click.Parameter, text: str | None) -> str | None:
    try:
        return dask_address(text) if text else None
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def executor_option(command: F) -> F:
    """Add the option of an executor to a command; `given_executor` reads it."""
    return click.option(
        "--executor",
        metavar="URL",
        callback=_address,
        help="Dask scheduler whose workers compile, such as dask://scheduler:8786; default NOJIT_EXECUTOR.",
    )(command)


def given_executor(address: str | None) -> str:
    """Return Dask's address of the scheduler of a command line, else of the environment; empty if neither names one.

    `address`: value of ``--executor``.

    Raises:
        UsageError: the variable has an invalid value.
    """
    url = os.environ.get(EXECUTOR, "")
    if address or not url:
        return address or ""
    try:
        return dask_address(url)
    except ValueError as error:
        raise click.UsageError(f"NOJIT_EXECUTOR: {error}") from None


def open_remote(
    request: Request, compiler: Compiler, open_local: Callable[[], Executor], tell: Callable[[str], None]
) -> RemoteExecutor:
    """Start to connect to the requested scheduler, and return the executor of its workers.

    Args:
        request: the build that the command line requests.
        compiler: the build's compiler.
        open_local: starts the executor for variants that cannot travel.
        tell: called with warnings.

    Raises:
        PackageError: a library is not installed.
    """
    try:
        import distributed  # noqa: F401 - of an extra
    except ModuleNotFoundError as error:
        from nojit.runtime.errors import PackageError

        what = f"expected {error.name} to be installed for --executor: pip install 'nojit[farm]'"
        raise PackageError(what) from None
    from nojit.aot.remote.build_facts import Build, Limits
    from nojit.aot.remote.connection import DaskConnection  # of an extra
    from nojit.aot.remote.executor import RemoteExecutor
    from nojit.aot.remote.messages import Setup
    from nojit.aot.remote.version import nojit_version

    # the build says itself what fails
    for name in ("distributed", "tornado"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    limits = Limits()
    return RemoteExecutor(
        lambda: DaskConnection.open(request.executor, limits.connect_s),
        request.executor,
        Build(
            compiler,  # type: ignore[arg-type] # the compiler of the command line has what the executor needs
            Setup(nojit_version(), request.min_driver, request.timeout_s),
            request.archs,
            open_local,
            tell,
        ),
        limits,
    )
