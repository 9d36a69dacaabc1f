"""The stand-in for Triton: how it is found, what it says it is, and whom it asks."""

from __future__ import annotations

import json
import sys
from functools import cache

import pytest
from nojit.runtime.serve import standin

from tests.runtime.serve.conftest import run

KERNEL = """
import triton, triton.language as tl

@triton.jit
def add(x_ptr, n, BLOCK: tl.constexpr):
    tl.store(x_ptr, tl.load(x_ptr) + n)
"""


@pytest.fixture
def script(tmp_path, without_triton):
    """Run a script beside a module ``program`` with a kernel ``add``."""
    (tmp_path / "program.py").write_text(KERNEL, encoding="utf-8")
    return lambda text, **settings: without_triton("import json\n" + text, paths=(tmp_path,), **settings)


def test_an_installed_triton_is_never_shadowed():
    pytest.importorskip("triton")
    before = [*sys.meta_path]
    assert standin.install() is False
    assert sys.meta_path == before
    assert not standin.installed()


def test_the_finder_is_the_last_one_and_can_be_taken_away(script):
    told = script(
        "import sys, triton.language\n"
        "first = [type(sys.meta_path[-1]).__name__, standin.installed(), standin.install()]\n"
        "standin.uninstall()\n"
        "import importlib.util\n"
        "print(json.dumps([first, importlib.util.find_spec('triton') is None, [m for m in sys.modules if m.startswith('triton')]]))"
    )
    assert told == [["Finder", True, True], True, []]


def test_nothing_serves_triton_before_it_is_asked_for(without_triton):
    told = without_triton(
        "import json, importlib.util, nojit.runtime.serve.standin\nprint(json.dumps(importlib.util.find_spec('triton') is None))",
        installed=False,
    )
    assert told is True


def test_a_folder_of_the_name_is_no_triton(script, tmp_path):
    """Python takes a folder without a package for a package, before it asks the last finder."""
    (tmp_path / "triton").mkdir()
    assert script("import triton\nprint(json.dumps(triton.__version__))") == "3.9.0+nojit"


def test_the_stand_in_says_who_it_is(script):
    told = script(
        "import importlib.metadata as metadata, importlib.util, triton\n"
        "spec = importlib.util.find_spec('triton')\n"
        "found = metadata.distribution('triton')\n"
        "print(json.dumps([triton.__version__, metadata.version('triton'), found.metadata['Name'], spec.name, "
        "triton.__file__.endswith('standin/__init__.py'), 'triton' in metadata.packages_distributions(), "
        "[d.name for d in metadata.distributions() if d.name == 'triton'], importlib.util.find_spec('triton.nothing')]))"
    )
    assert told == ["3.9.0+nojit", "3.9.0+nojit", "triton", "triton", True, True, ["triton"], None]


def test_the_version_is_the_recorded_one(script):
    told = script(
        "standin.set_recorded(standin.Recorded(version='3.8.0', key='abc', backend_hashes={'sm_90': 'def'}))\n"
        "import importlib.metadata, triton\nfrom triton.runtime.cache import triton_key\n"
        "from triton.compiler.compiler import make_backend\nfrom triton.backends.compiler import GPUTarget\n"
        "backend = make_backend(GPUTarget('cuda', 90, 32))\n"
        "print(json.dumps([triton.__version__, importlib.metadata.version('triton'), triton_key(), backend.hash()]))"
    )
    assert told == ["3.8.0+nojit", "3.8.0+nojit", "abc", "def"]


def test_importing_triton_loads_nothing_else(script):
    """So it costs less than a millisecond; the names load when they are asked for."""
    told = script(
        "import sys\nbefore = {*sys.modules}\nimport triton\nprint(json.dumps(sorted({*sys.modules} - before)))"
    )
    assert told == ["triton"]


def test_host_names_load_no_torch(script):
    told = script(
        "import sys, triton, triton.language as tl\nfrom program import add\ntriton.autotune; triton.testing.do_bench; tl.float16\n"
        "print(json.dumps([each for each in ('torch', 'numpy') if each in sys.modules]))"
    )
    assert told == []


def test_a_launch_without_a_server_is_an_error_that_names_the_kernel(script):
    told = script(
        "from program import add\nfound = []\n"
        "for launch in (lambda: add[(1,)](1, 2, BLOCK=3), lambda: add.run(1, 2, BLOCK=3, grid=(1,), warmup=False)):\n"
        "    try:\n        launch()\n    except standin.MissingError as error:\n        found.append(str(error))\n"
        "print(json.dumps(found))"
    )
    text = "program.add: nothing launches it: no bundle is served; call nojit.serve(...) before the launch, or set NOJIT_SERVE"
    assert told == [text, text]


def test_the_server_gets_the_call_as_the_program_made_it(script):
    told = script(
        "from program import add\nlog = []\n"
        "def launch(function, grid, args, kwargs, warmup):\n"
        "    log.append([function is add, grid, args, kwargs, warmup])\n    return 'made'\n"
        "standin.set_callbacks(launch, lambda *given: None)\n"
        "made = [add[(1, 2)](7, n=8, BLOCK=9, num_warps=2), add.warmup(7, 8, grid=(1,), BLOCK=3), add.run(1, grid=None, warmup=False)]\n"
        "print(json.dumps([made, log]))"
    )
    assert told == [
        ["made"] * 3,
        [
            [True, [1, 2], [7], {"n": 8, "BLOCK": 9, "num_warps": 2}, False],
            [True, [1], [7, 8], {"BLOCK": 3}, True],
            [True, None, [1], {}, False],
        ],
    ]


def test_a_warmup_gives_a_mock_tensor_for_a_dtype(script):
    pytest.importorskip("torch")
    told = script(
        "import torch\nfrom program import add\n"
        "standin.set_callbacks(lambda function, grid, args, kwargs, warmup: [type(args[0]).__name__, str(args[0].dtype)], lambda *given: None)\n"
        "print(json.dumps(add.warmup(torch.float16, 3, BLOCK=1, grid=(1,))))"
    )
    assert told == ["MockTensor", "torch.float16"]


def test_the_server_gives_the_handle_of_a_grid(script):
    told = script(
        "from program import add\nhandles = {}\n"
        "def handle(function, grid):\n    return None if grid == (9,) else handles.setdefault(grid, lambda *args, **kwargs: ['handle', grid])\n"
        "standin.set_callbacks(lambda *given: 'launch', lambda *given: None, handle)\n"
        "print(json.dumps([add[(1,)](3), add[(1,)] is add[(1,)], add[(9,)](3)]))"
    )
    assert told == [["handle", [1]], True, "launch"]


def test_what_serves_a_function_is_not_looked_for_at_each_launch(script):
    told = script(
        "from program import add\nfrom nojit.runtime.serve.hosts import ATTRIBUTE\nasked = []\n"
        "def handle(function, grid):\n    asked.append(grid)\n    vars(function)[ATTRIBUTE] = {(1,): 'handle', (2,): 'other'}\n    return 'found'\n"
        "standin.set_callbacks(lambda *given: 'launch', lambda *given: None, handle)\n"
        "print(json.dumps([add[(1,)], add[(1,)], add[(2,)], asked]))"
    )
    assert told == ["found", "handle", "other", [[1]]]


@pytest.mark.parametrize(
    "change",
    [
        "add.add_pre_run_hook(lambda *args, **kwargs: log.append('hook'))",
        "add.debug = True",
        "add.run = lambda *args, **kwargs: 'own'",
    ],
)
def test_handles_skip_neither_hooks_nor_a_run_of_the_programs_own(script, change):
    told = script(
        "from program import add\nlog = []\n"
        "standin.set_callbacks(lambda function, grid, args, kwargs, warmup: ['launch', kwargs], lambda *given: None, lambda *given: lambda *args: 'handle')\n"
        f"{change}\nprint(json.dumps([add[(1,)](3), log]))"
    )
    assert told in ([["launch", {}], ["hook"]], [["launch", {"debug": True}], []], ["own", []])


def test_a_debug_variable_is_an_option_of_launches(script):
    text = (
        "from program import add\nstandin.set_callbacks(lambda function, grid, args, kwargs, warmup: kwargs, lambda *given: None)\n"
        "print(json.dumps(add[(1,)](3)))"
    )
    assert script(text, TRITON_DEBUG="1") == {"debug": True}
    assert script(text) == {}


def test_half_a_server_is_refused():
    with pytest.raises(ValueError, match="both launch and choose"):
        standin.set_callbacks(lambda *given: None)


def test_a_chosen_config_of_another_process_runs_the_hook_of_the_programs_own(script):
    told = script(
        "import triton\nfrom program import add\nlog = []\n"
        "configs = [triton.Config({'BLOCK': n}, pre_hook=lambda nargs: log.append(sorted(nargs))) for n in (1, 2)]\n"
        "made = triton.autotune(configs, key=['n'])(add)\n"
        "standin.set_callbacks(lambda function, grid, args, kwargs, warmup: kwargs, lambda *given: triton.Config({'BLOCK': 2}))\n"
        "print(json.dumps([made[(1,)](1, 2), log, made.best_config is configs[1]]))"
    )
    assert told[0] == {"BLOCK": 2, "num_warps": 4, "num_ctas": 1, "num_stages": 3}
    assert told[1] == [["BLOCK", "grid", "n", "num_ctas", "num_stages", "num_warps", "warmup", "x_ptr"]]
    assert told[2] is True


def test_the_run_of_autotuners_serves_tritons_own():
    """The serving package gives it to Triton's class where Triton is installed."""
    triton = pytest.importorskip("triton")
    log = []

    class Kernel:
        arg_names = ("x", "n")

        def fn(self) -> None: ...

        def run(self, *args, **kwargs):
            log.append((args, kwargs))

    kernel = Kernel()
    kernel.fn = Kernel.fn
    made = triton.autotune([triton.Config({"BLOCK": n}) for n in (1, 2)], key=["n"])(kernel)
    asked = []

    def choose(autotuner, key, configs, nargs):
        asked.append((autotuner, key, nargs))
        return configs[1]

    for _ in range(2):
        standin.run_autotuned(made, choose, (7, 8), {"grid": (1,), "warmup": False})
    assert asked == [(made, (8,), {"x": 7, "n": 8})]
    assert [kwargs["BLOCK"] for _, kwargs in log] == [2, 2]
    assert made.cache == {(8,): made.configs[1]}


USES = [
    ("tl.load(3)", "triton.language.core.load"),
    ("tl.math.exp(3)", "triton.language.math.exp"),
    ("tl.extra.cuda.libdevice.tanh(3)", "triton.language.extra.cuda.libdevice.tanh"),
    ("tl.extra.libdevice.tanh(3)", "triton.language.extra.libdevice.tanh"),
    ("tl.tensor(1, 2)", "triton.language.core.tensor"),
    ("tl.tensor.sum(1)", "triton.language.core.tensor.sum"),
    ("tl.float16.to_ir(3)", "triton.language.core.dtype.to_ir"),
    ("triton.compile(3)", "triton.compile"),
    ("triton.compiler.ASTSource(3)", "triton.compiler.compiler.ASTSource"),
    ("triton.compiler.CompiledKernel(3)", "triton.compiler.CompiledKernel"),
    ("triton.testing.set_gpu_clock()", "triton.testing.set_gpu_clock"),
    ("triton.tools.disasm.get_sass(3)", "triton.tools.disasm.get_sass"),
    ("triton.runtime.cache.get_cache_manager('ab')", "triton.runtime.cache.get_cache_manager"),
    ("triton.runtime.cache.FileCacheManager('ab')", "triton.runtime.cache.FileCacheManager"),
    ("triton.profiler.start('x')", "triton.profiler.profile.start"),
    ("gl.arange(3)", "triton.experimental.gluon.language._core.arange"),
    ("gl.nvidia.hopper.tma.async_copy_global_to_shared(3)", "triton.experimental.gluon.language.nvidia.hopper.tma"),
    ("gl.AutoLayout().format_tensor_view([1])", "triton.experimental.gluon.language._layouts.AutoLayout"),
    ("import_module('triton._C.libtriton')", "triton._C"),
]
OPAQUE = """
import triton, triton.language as tl
from importlib import import_module
import triton.testing, triton.tools.disasm, triton.runtime.cache, triton.profiler
from triton.experimental.gluon import language as gl
told = {}
for use in USES:
    try:
        told[use] = repr(eval(use))
    except standin.MissingError as error:
        told[use] = str(error)
print(json.dumps(told))
"""


@cache
def told_of_uses() -> dict[str, str]:
    text = f"import json\nUSES = {[use for use, _ in USES]}\n{OPAQUE}"
    told: dict[str, str] = json.loads(run(text).splitlines()[-1])
    return told


@pytest.mark.parametrize(("use", "name"), USES)
def test_a_name_without_an_implementation_is_an_error_with_the_full_name(use, name):
    assert name in told_of_uses()[use]
    assert "install Triton" in told_of_uses()[use]


def test_a_module_of_tritons_compiler_is_missing_for_programs_that_try(script):
    told = script(
        "try:\n    from triton._C import libtriton\nexcept ImportError as error:\n    print(json.dumps([error.name, str(error)]))"
    )
    assert told[0] == "triton._C"
    assert "install Triton" in told[1]


def test_an_unknown_name_is_missing_for_programs_that_look(script):
    told = script(
        "import triton, triton.language as tl\n"
        "found = [hasattr(tl, 'make_tensor_descriptor'), hasattr(tl, 'nothing'), hasattr(triton.language.extra, 'xpu'), hasattr(triton, '__nothing__')]\n"
        "try:\n    tl.nothing\nexcept AttributeError as error:\n    found.append(str(error))\n"
        "try:\n    import triton.nothing\nexcept ModuleNotFoundError as error:\n    found.append(str(error))\n"
        "print(json.dumps(found))"
    )
    assert told[:4] == [True, False, False, False]
    assert told[4].startswith("module 'triton.language' has no attribute 'nothing': nojit's stand-in")
    assert told[5] == "No module named 'triton.nothing'"


def test_names_of_an_older_triton_depend_on_the_recorded_version(script):
    text = (
        "import triton.language as tl\nprint(json.dumps([hasattr(tl, 'make_block_ptr'), hasattr(tl, 'atomic_poll')]))"
    )
    assert script(text) == [True, True]
    assert script("standin.set_recorded(standin.Recorded(version='3.6.0'))\n" + text) == [True, False]


def test_a_function_of_tritons_library_is_a_jit_function(script):
    """A program passes ``tl.sum`` as a constexpr: nojit knows it by its module and name."""
    told = script(
        "import triton, triton.language as tl\nfrom nojit.runtime.call.constexprs import constexpr_value\n"
        "try:\n    tl.sum.src\nexcept standin.MissingError as error:\n    source = str(error)\n"
        "print(json.dumps([isinstance(tl.sum, triton.JITFunction), tl.sum.arg_names[:2], tl.sum.__module__, source, "
        "str(constexpr_value(tl.sum, 'f', 'k')), str(constexpr_value(tl.float16, 'f', 'k')), constexpr_value(tl.constexpr(3), 'f', 'k')]))"
    )
    assert told[:3] == [True, ["input", "axis"], "triton.language.standard"]
    assert told[3].startswith("triton.language.standard.sum: nojit's stand-in for Triton has no source of it")
    assert "triton.language.standard:sum" in told[4]
    assert "fp16" in told[5]
    assert told[6] == 3


def test_the_source_of_a_function_is_read_when_it_is_asked_for(tmp_path, without_triton):
    told = without_triton(
        "import json, triton\nspace = {'triton': triton}\n"
        "exec(compile('@triton.jit\\ndef f(x): pass', 'nowhere', 'exec'), space)\n"
        "try:\n    space['f'].src\nexcept ValueError as error:\n    print(json.dumps([space['f'].arg_names, str(error)]))"
    )
    assert told == [["x"], "@jit functions should be defined in a Python file"]


def test_a_source_names_the_functions_that_it_reaches(script, tmp_path):
    (tmp_path / "more.py").write_text(
        "import triton\n\n@triton.jit\ndef inner(x):\n    return x\n\n@triton.jit\ndef outer(x):\n    return inner(x)\n",
        encoding="utf-8",
    )
    told = script(
        "import more\nbefore = more.outer.cache_key\nagain = more.outer.cache_key\n"
        "more.inner._unsafe_update_src('def inner(x):\\n    return x + 1\\n'); more.outer.hash = None\n"
        "print(json.dumps([before == again, more.outer.cache_key != before, more.inner.src]))"
    )
    assert told == [True, True, "def inner(x):\n    return x + 1\n"]


def test_the_interpreter_is_an_error_at_the_launch(script):
    told = script(
        "from program import add\nfrom triton.runtime.interpreter import InterpretedFunction\n"
        "try:\n    add[(1,)](3)\nexcept standin.MissingError as error:\n    print(json.dumps([isinstance(add, InterpretedFunction), str(error)]))",
        TRITON_INTERPRET="1",
    )
    assert told == [
        True,
        "program.add: TRITON_INTERPRET asks for Triton's interpreter; unset TRITON_INTERPRET, or install Triton",
    ]


def test_gluon_functions_are_jit_functions(script, tmp_path):
    (tmp_path / "more.py").write_text(
        "from triton.experimental import gluon\nfrom triton.experimental.gluon import language as gl\n\n"
        "@gluon.jit\ndef f(x, layout: gl.constexpr, n: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])):\n    gl.load(x)\n",
        encoding="utf-8",
    )
    told = script(
        "import more, triton\nstandin.set_callbacks(lambda function, grid, args, kwargs, warmup: repr(kwargs['layout']), lambda *given: None)\n"
        "from triton.experimental.gluon import language as gl\n"
        "print(json.dumps([isinstance(more.f, triton.JITFunction), more.f.is_gluon(), type(more.f).__name__, "
        "more.f[(1,)](3, layout=gl.SliceLayout(0, gl.AutoLayout()))]))"
    )
    assert told == [True, True, "GluonJITFunction", "SliceLayout(dim=0, parent=AutoLayout())"]


def test_the_driver_tells_the_device_of_torch_and_the_properties_of_the_cuda_driver(script, fakecuda_library):
    told = script(
        "import sys, types\ncuda = types.SimpleNamespace(is_available=lambda: True, current_device=lambda: 0, get_device_capability=lambda d: (9, 0))\n"
        "sys.modules['torch'] = types.SimpleNamespace(cuda=cuda, version=types.SimpleNamespace(hip=None), _C=types.SimpleNamespace(_cuda_getCurrentRawStream=lambda d: 5))\n"
        "import triton\nfrom triton.runtime import driver\nactive = driver.active\n"
        "found = [repr(active.get_current_target()), active.get_current_device(), active.get_current_stream(0), active.utils.get_device_properties(0)]\n"
        "try:\n    active.utils.load_binary\nexcept standin.MissingError as error:\n    found.append(str(error))\n"
        "found += [hasattr(active, 'launcher_cls'), active.map_python_to_cpp_type('*fp16'), triton.language.target_info.cuda_capability_geq(9)]\n"
        "driver.set_active(3); found.append(driver.active); driver.reset_active(); found.append(driver.active is active)\n"
        "print(json.dumps(found))",
        NOJIT_LIBCUDA=str(fakecuda_library.path),
    )
    assert told[:3] == ["GPUTarget(backend='cuda', arch=90, warp_size=32)", 0, 5]
    assert told[3]["multiprocessor_count"] == 132
    assert told[3]["warpSize"] == 32
    assert sorted(told[3]) == [
        "max_num_regs",
        "max_shared_mem",
        "mem_bus_width",
        "mem_clock_rate",
        "multiprocessor_count",
        "sm_clock_rate",
        "warpSize",
    ]
    assert "triton.runtime.driver.active.utils.load_binary" in told[4]
    assert told[5:] == [False, "CUdeviceptr", True, 3, True]


def test_do_bench_times_by_events(script):
    told = script(
        "import triton\nfrom triton.runtime import driver\nlog = []\n"
        "class Event:\n    def __init__(self, enable_timing): self.at = None\n    def record(self): self.at = len(log)\n    def elapsed_time(self, other): return float(other.at - self.at)\n"
        "class Device:\n    Event = Event\n    @staticmethod\n    def synchronize(): pass\n"
        "class Driver:\n    def get_device_interface(self): return Device\n    def get_empty_cache_for_benchmark(self): return 'cache'\n    def clear_cache(self, cache): assert cache == 'cache'\n"
        "driver.set_active(Driver())\nfn = lambda: log.append(1)\n"
        "print(json.dumps([triton.testing.do_bench(fn, warmup=3, rep=4), len(log), triton.testing.do_bench(fn, rep=4, quantiles=[0.5, 0.1]), triton.testing.do_bench(fn, rep=3, return_mode='all')]))"
    )
    assert told == [1.0, 1 + 5 + 3 + 4, [1.0, 1.0], [1.0] * 3]


def test_a_config_of_the_stand_in_can_be_pickled_by_its_name_in_triton(script):
    told = script(
        "import pickle, triton\ntext = pickle.dumps(triton.Config({'A': 1}))\n"
        "print(json.dumps([b'triton.runtime.autotuner' in text, b'nojit' in text, str(pickle.loads(text))]))"
    )
    assert told == [True, False, "A: 1, num_warps: 4, num_ctas: 1, num_stages: 3, maxnreg: None, ir_override: None"]


def test_rules_of_the_newest_triton_bind_no_program_that_was_recorded_with_an_older_one(script):
    text = (
        "import triton\nfrom program import add\n"
        "def keywords(a, **rest): pass\n"
        "def attempt(function):\n    try:\n        return str(function())\n    except Exception as error:\n        return type(error).__name__\n"
        "print(json.dumps([attempt(lambda: triton.jit(keywords).arg_names), "
        "attempt(lambda: triton.autotune([triton.Config({})], key=['nothing'])(add).keys), str(triton.Config({}))]))"
    )
    options = "num_warps: 4, num_ctas: 1, num_stages: 3, maxnreg: None"
    assert script(text) == ["TypeError", "ValueError", f"{options}, ir_override: None"]
    older = script("standin.set_recorded(standin.Recorded(version='3.8.0'))\n" + text)
    assert older == ["['a', 'rest']", "['nothing']", options]
