"""The methods of Python that C calls by name: what each gets, what it returns, and when C calls it.

`runtime/binding/python/callbacks.h` is the same list for C; a test compares the two. Only type checkers and readers need this module:
nothing imports it when it runs.

C holds no lock during a callback. An exception ends the call of the kernel, and its caller gets it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from nojit.runtime import _core
    from nojit.runtime.call.bound_call import Facts
    from nojit.runtime.errors import NojitError, NoMatchingVariantError
    from nojit.runtime.values import Value

__all__ = ["KernelCallbacks", "ServedCallbacks"]


class KernelCallbacks(Protocol):
    """A kernel's methods; they are in `nojit.runtime.first_call.callbacks.FirstCalls`, a base of `nojit.runtime.kernel.Kernel`.

    C calls the first two while it reads the arguments of any call, `_refuse_grid` before any launch whose grid has no value, and the others
    only for a call without a cached plan.
    """

    def _check_option(self, name: str, value: Any, /) -> None:
        """Refuse a keyword, unless the kernel may ignore it.

        Called at each call, for each keyword that is not ``stream`` and names no param and no option of the kernel.

        Raises:
            ArgumentError: Triton has no such option, or the kernel was built with another value.
        """

    def _constexpr_key(self, value: Any, /) -> tuple[int, int]:
        """Return the tag and the bits of a constexpr in the key of its call.

        Called at each call, for each constexpr of a type that C does not know, such as a function.
        """
        ...

    def _prepare(self, device: int, /) -> _core.Spec:
        """Return the facts by which C selects a variant on a device.

        Called at the first call on the device. Of several results for one device, C keeps the first.

        Raises:
            NoMatchingVariantError: no bundle runs on the device.
        """
        ...

    def _constexpr_value(self, value: Any, name: str, /) -> Value:
        """Return what a bundle stores for a constexpr, which `name` names.

        Called when a variant is selected, for each constexpr that is no int, float, bool, string or None.

        Raises:
            ArgumentError: a bundle stores no such value.
        """
        ...

    def _plan_of(self, device: int, row: int, /) -> _core.Plan:
        """Return the plan of the selected row of a device's table: the same one each time.

        Called when no cached plan has the key of a call. Several threads may ask for the same row.

        Raises:
            BundleError: the image is not the one that was built.
            DriverError: the driver refuses the image.
        """
        ...

    def _note_hints(self, plan: _core.Plan, hint_set: int, facts: Facts, /) -> None:
        """Note that a call just misses the hints of a better variant of the same config.

        Called after `_plan_of`, with the number of the missed set of hints.
        """

    def _refuse(self, device: int, facts: Facts, /) -> None:
        """Raise the reason why no variant serves a call.

        Called when the selection finds no row. C raises SystemError if this method returns.

        Raises:
            ArgumentError: the kernel can never take the call.
            NoMatchingVariantError: a build could add a variant for it.
        """

    def _missed(
        self, error: NoMatchingVariantError, device: int, facts: Facts, given: dict[str, Any], grid: Any, /
    ) -> bool:
        """Run a call that no variant serves in another way; return whether that was done. If not, C raises `error`.

        Called with the error of `_prepare` or `_refuse`, once the arguments are read: `given` has them by name, `grid` is a tuple, a
        callable, or None for the bundle's grid.
        """
        ...

    def _refuse_grid(self, plan: _core.Plan, dimension: int, facts: Facts, /) -> None:
        """Raise the reason why the bundle's expression for a dimension of the grid has no value for a call.

        Called before a launch without a grid of its caller. Calls with a cached plan need this, too.

        Raises:
            ArgumentError: always.
        """


class ServedCallbacks(Protocol):
    """The methods of a function of Triton that nojit serves: `nojit.runtime.serve.function.Function`.

    C launches the function's kernel itself, and hands over only the calls that it cannot make so. Both methods get the call as the
    program wrote it, and return what the program's call returns.
    """

    def _detour(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any], /) -> Any:
        """Make a call around which the program wants its hooks called.

        Called instead of a launch, as long as a watched list of hooks is not empty.
        """
        ...

    def _recover(self, error: NojitError, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any], /) -> Any:
        """Make a call that the kernel refused with `error`, or raise an error, as ``NOJIT_MISS`` says."""
        ...
