"""Autotuners and heuristics: a chooser replaces timing."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any

from nojit.runtime.base.launch_options import CONFIG_OPTIONS
from nojit.runtime.serve.standin.callbacks import served, since
from nojit.runtime.serve.standin.failures import AutotunerError
from nojit.runtime.serve.standin.functions import KernelInterface
from nojit.runtime.serve.standin.registry import exported

__all__ = ["Autotuner", "Config", "Heuristics", "autotune", "heuristics", "run_autotuned", "tuning_key"]


@exported("triton.runtime.autotuner")
class Config:
    """One setting of the tunable constexprs and options.

    Args:
        kwargs: the constexprs.
        num_warps: warps of a block.
        num_stages: stages of pipelined loops.
        num_ctas: blocks of a cluster.
        maxnreg: the most registers of a thread.
        pre_hook: takes the arguments by name before each launch.
        ir_override: a file to compile in place of the source.
    """

    def __init__(
        self,
        kwargs: dict[str, Any],
        num_warps: int = 4,
        num_stages: int = 3,
        num_ctas: int = 1,
        maxnreg: int | None = None,
        pre_hook: Callable[..., Any] | None = None,
        ir_override: str | None = None,
    ) -> None:
        self.kwargs = kwargs
        self.num_warps = num_warps
        self.num_ctas = num_ctas
        self.num_stages = num_stages
        self.maxnreg = maxnreg
        self.pre_hook = pre_hook
        self.ir_override = ir_override

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= {"kwargs": {}, "num_warps": 4, "num_stages": 3, "num_ctas": 1}
        self.__dict__ |= {"maxnreg": None, "pre_hook": None, "ir_override": None, **state}

    def all_kwargs(self) -> dict[str, Any]:
        """Return the constexprs and the options that are not None."""
        return {**self.kwargs, **{name: value for name in CONFIG_OPTIONS if (value := getattr(self, name)) is not None}}

    def _key(self) -> tuple[Any, ...]:
        return (*self.all_kwargs().items(), self.pre_hook)

    def __str__(self) -> str:
        options = CONFIG_OPTIONS if since("3.9") else CONFIG_OPTIONS[:-1]
        pairs = [*self.kwargs.items(), *((name, getattr(self, name)) for name in options)]
        return ", ".join(f"{name}: {value}" for name, value in pairs)

    def __hash__(self) -> int:
        return hash(self._key())

    def __eq__(self, other: object) -> bool:
        theirs: Any = other
        return self._key() == (*theirs.all_kwargs().items(), theirs.pre_hook)


def tuning_key(autotuner: Any, kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Return the key under which an autotuner keeps the config of a call: values of its ``key``, then dtypes.

    Args:
        autotuner: the stand-in's or Triton's, with the positional arguments in ``nargs``.
        kwargs: the keyword arguments.
    """
    given = {name: value for name, value in {**autotuner.nargs, **kwargs}.items() if name in autotuner.arg_names}
    values = [given[name] for name in autotuner.keys if name in given]
    return (*values, *(str(value.dtype) for value in given.values() if hasattr(value, "dtype")))


def run_autotuned(autotuner: Any, choose: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an autotuned function with the config that a chooser names: nothing is timed.

    Hooks are called as Triton calls them when it has the config of a key. At the first call of a key, ``pre_hook`` is also called
    with ``reset_only``, as Triton calls it after it timed, so that tensors of ``reset_to_zero`` hold the same values.

    Args:
        autotuner: the stand-in's or Triton's.
        choose: returns the config: see the package.
        args: the positional arguments.
        kwargs: the keyword arguments, with ``grid`` and ``warmup``.

    Returns:
        The launch's result.
    """
    autotuner.nargs = dict(zip(autotuner.arg_names, args, strict=False))
    if len(autotuner.configs) > 1:
        key = tuning_key(autotuner, kwargs)
        if key not in autotuner.cache:
            autotuner.cache[key] = _chosen(autotuner, choose, key, kwargs)
        config = autotuner.cache[key]
    else:
        config = autotuner.configs[0]
    autotuner.best_config = config
    if config.pre_hook is not None:
        config.pre_hook({**autotuner.nargs, **kwargs, **config.all_kwargs()})
    result = autotuner.fn.run(*args, **kwargs, **config.all_kwargs())
    autotuner.nargs = None
    return result


def _chosen(autotuner: Any, choose: Callable[..., Any], key: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    configs = autotuner.prune_configs(kwargs)
    if len(configs) == 1:
        return configs[0]
    named = {**autotuner.nargs, **{name: value for name, value in kwargs.items() if name not in {"grid", "warmup"}}}
    found = choose(autotuner, key, configs, named)
    # the program's own has the pre_hook
    config = next((each for each in configs if each.all_kwargs() == found.all_kwargs()), found)
    autotuner.pre_hook({**autotuner.nargs, **kwargs, **config.all_kwargs()}, reset_only=True)
    autotuner.configs_timings, autotuner.bench_time = {}, 0.0
    return config


@exported("triton.runtime.autotuner")
class Autotuner(KernelInterface):
    """A kernel with several configs; see `autotune` for the params.

    Raises:
        ValueError: a name is no param of the kernel.
    """

    def __init__(
        self,
        fn: Any,
        arg_names: list[str],
        configs: list[Any],
        key: list[str],
        reset_to_zero: list[str] | None,
        restore_value: list[str] | None,
        pre_hook: Any = None,
        post_hook: Any = None,
        prune_configs_by: dict[str, Any] | None = None,
        warmup: int | None = None,
        rep: int | None = None,
        use_cuda_graph: bool = False,
        do_bench: Any = None,
        cache_results: bool = False,
    ) -> None:
        self.fn = fn
        self.base_fn = fn
        while not inspect.isfunction(self.base_fn):
            self.base_fn = self.base_fn.fn
        self.arg_names = arg_names
        self.configs = configs or [Config({})]
        self.keys = key
        self.cache: dict[tuple[Any, ...], Any] = {}
        self.cache_results = cache_results
        self.reset_to_zero = [*(reset_to_zero or ())]
        self.restore_value = [*(restore_value or ())]
        for param, names in (
            ("key", self.keys),
            ("reset_to_zero", self.reset_to_zero),
            ("restore_value", self.restore_value),
        ):
            unknown = [name for name in names if name not in self.arg_names]
            if unknown and since("3.9"):
                raise ValueError(
                    f"{param} contains names that are not kernel arguments: {', '.join(unknown)}. "
                    f"Valid argument names are: {', '.join(self.arg_names)}."
                )
        self.restore_copies: dict[str, Any] = {}
        self.nargs: dict[str, Any] | None = None
        self.user_defined_pre_hook = bool(pre_hook)
        self.user_defined_post_hook = bool(post_hook)
        self.pre_hook = pre_hook or self._prepare
        self.post_hook = post_hook or self._restore
        prune = prune_configs_by or {}
        self.perf_model = prune.get("perf_model")
        self.configs_top_k = prune.get("top_k", 1.0)
        self.early_config_prune = prune.get("early_config_prune")
        self.num_warmups = warmup
        self.num_reps = rep
        self.use_cuda_graph = use_cuda_graph
        self._do_bench = do_bench
        if warmup is not None or rep is not None or use_cuda_graph:
            warnings.warn(
                "warmup, rep, and use_cuda_graph of triton.autotune are deprecated", DeprecationWarning, stacklevel=1
            )

    def _prepare(self, kwargs: dict[str, Any], reset_only: bool = False) -> None:
        for name in self.reset_to_zero:
            if kwargs[name] is not None:
                kwargs[name].zero_()
        if not reset_only:
            self.restore_copies = {
                name: kwargs[name].clone() for name in self.restore_value if kwargs[name] is not None
            }

    def _restore(self, kwargs: dict[str, Any], exception: BaseException | None) -> None:
        for name, value in self.restore_copies.items():
            kwargs[name].copy_(value)
        self.restore_copies = {}

    @property
    def do_bench(self) -> Any:
        """The function that would time: only a program that calls `_bench` itself does."""
        if self._do_bench is None:
            from nojit.runtime.serve.standin.driver import driver

            self._do_bench = driver.active.get_benchmarker()
        return self._do_bench

    @do_bench.setter
    def do_bench(self, function: Any) -> None:
        self._do_bench = function

    def _bench(self, *args: Any, config: Any, **meta: Any) -> Any:
        """Time a config, for programs that call this themselves."""
        twice = meta.keys() & config.kwargs.keys()
        if twice:
            raise ValueError(
                f"Conflicting meta-parameters: {', '.join(twice)}. Make sure that you don't re-define auto-tuned symbols."
            )
        given = {**meta, **config.all_kwargs()}
        named = {**(self.nargs or {}), **given}

        def call() -> None:
            if config.pre_hook:
                config.pre_hook(named)
            self.pre_hook(named)
            try:
                self.fn.run(*args, **given)
            except Exception as error:
                self.post_hook(named, exception=error)
                raise
            self.post_hook(named, exception=None)

        return self.do_bench(call, quantiles=(0.5, 0.2, 0.8))

    def check_disk_cache(self, tuning_key: Any, configs: Any, bench_fn: Callable[[], Any]) -> bool:
        """Find nothing: the stand-in keeps no files."""
        bench_fn()
        return False

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Launch with the chosen config."""
        return run_autotuned(self, served(f"the autotuner of {self.base_fn.__name__}").choose, args, kwargs)

    def prune_configs(self, kwargs: dict[str, Any]) -> list[Any]:
        """Return the configs that the program's own functions leave.

        Raises:
            AutotunerError: none is left.
            TypeError: ``top_k`` is no number of configs.
        """
        configs = self.configs
        nargs = self.nargs or {}
        if self.early_config_prune:
            configs = self.early_config_prune(configs, nargs, **kwargs)
            if not configs:
                raise AutotunerError(
                    "No valid autotuner configs after pruning. `early_config_prune` should return at least one config."
                )
        if not self.perf_model:
            return configs
        top_k = self.configs_top_k
        if isinstance(top_k, float) and top_k <= 1.0:
            top_k = max(1, int(len(configs) * top_k))
        elif not isinstance(top_k, int):
            raise TypeError("Error while pruning configs, top_k must be either 1) a float <= 1.0 or 2) an int")
        if len(configs) <= top_k:
            return configs
        times = {config: self.perf_model(**nargs, **kwargs, **config.all_kwargs()) for config in configs}
        return sorted(times, key=times.__getitem__)[:top_k]

    def warmup(self, *args: Any, **kwargs: Any) -> list[Any]:
        """Prepare a launch with each config."""
        self.nargs = dict(zip(self.arg_names, args, strict=False))
        made = [self.fn.warmup(*args, **kwargs, **config.all_kwargs()) for config in self.prune_configs(kwargs)]
        self.nargs = None
        return made


@exported("triton.runtime.autotuner")
def autotune(
    configs: list[Any],
    key: list[str],
    prune_configs_by: dict[str, Any] | None = None,
    reset_to_zero: list[str] | None = None,
    restore_value: list[str] | None = None,
    pre_hook: Any = None,
    post_hook: Any = None,
    warmup: int | None = None,
    rep: int | None = None,
    use_cuda_graph: bool = False,
    do_bench: Any = None,
    cache_results: bool = False,
) -> Callable[[Any], Autotuner]:
    """Decorate a ``@triton.jit`` function that runs with one of several configs.

    Args:
        configs: the configs.
        key: params whose values decide which is best.
        prune_configs_by: functions that leave some of them: ``early_config_prune``, ``perf_model``, ``top_k``.
        reset_to_zero: tensors that a trial must find zero.
        restore_value: tensors that a trial must not change.
        pre_hook: called before a trial.
        post_hook: called after a trial.
        warmup: deprecated.
        rep: deprecated.
        use_cuda_graph: deprecated.
        do_bench: times a function.
        cache_results: whether Triton would keep the times in files.
    """

    def decorate(fn: Any) -> Autotuner:
        return Autotuner(
            fn,
            fn.arg_names,
            configs,
            key,
            reset_to_zero,
            restore_value,
            pre_hook=pre_hook,
            post_hook=post_hook,
            prune_configs_by=prune_configs_by,
            warmup=warmup,
            rep=rep,
            use_cuda_graph=use_cuda_graph,
            do_bench=do_bench,
            cache_results=cache_results,
        )

    return decorate


@exported("triton.runtime.autotuner")
class Heuristics(KernelInterface):
    """A kernel with constexprs that functions compute from the arguments."""

    def __init__(self, fn: Any, arg_names: list[str], values: dict[str, Callable[[dict[str, Any]], Any]]) -> None:
        self.fn = fn
        self.arg_names = arg_names
        self.values = values

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Launch with the computed values: each function sees those before it."""
        for name, compute in self.values.items():
            kwargs[name] = compute({**dict(zip(self.arg_names, args, strict=False)), **kwargs})
        return self.fn.run(*args, **kwargs)


@exported("triton.runtime.autotuner")
def heuristics(values: dict[str, Callable[[dict[str, Any]], Any]]) -> Callable[[Any], Heuristics]:
    """Decorate a ``@triton.jit`` function with constexprs that functions compute from the arguments."""
    return lambda fn: Heuristics(fn, fn.arg_names, values)
