"""What kernel sources see while they are imported: the target, for each arch, and not what is in the machine that builds."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable
from typing import Any

import pytest

from tests.aot.projects import KERNEL, Project, entry

pytestmark = pytest.mark.triton

Make = Callable[[], Project]
BOTH = ("--arch", "sm_80", "--arch", "sm_90")

# what sources ask, and what they are told for sm_80 and sm_90
TRITON = {
    "triton.runtime.driver.active.get_current_target().backend": ("cuda", "cuda"),
    "triton.runtime.driver.active.get_current_target().arch": (80, 90),
    "triton.runtime.driver.active.get_current_target().warp_size": (32, 32),
    "triton.runtime.driver.active.get_current_device()": (0, 0),
    "triton.runtime.driver.active.get_device_capability(0)": ([8, 0], [9, 0]),
    "triton.runtime.driver.active.utils.get_device_properties(0)['max_shared_mem']": (166912, 232448),
    "triton.runtime.driver.active.utils.get_device_properties(0)['multiprocessor_count']": (108, 132),
    "triton.runtime.driver.active.utils.get_device_properties(0).get('max_num_regs')": (65536, 65536),
    "triton.runtime.driver.default.get_current_target().arch": (80, 90),
    "tl.target_info.current_target().arch": (80, 90),
    "[name for name, backend in triton.backends.backends.items() if backend.driver.is_active()]": (["nvidia"],) * 2,
    "'torch' in sys.modules": (False, False),
}
TORCH = {
    "torch.cuda.is_available()": (True, True),
    "torch.cuda.device_count()": (1, 1),
    "torch.cuda.current_device()": (0, 0),
    "torch.cuda.get_device_capability()": ([8, 0], [9, 0]),
    "torch.cuda.get_device_capability('cuda:0')": ([8, 0], [9, 0]),
    "torch.cuda.get_device_capability(torch.device('cuda'))[0] >= 9": (False, True),
    "torch.cuda.get_device_name()": ("NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3"),
    "torch.cuda.get_device_properties(0).multi_processor_count": (108, 132),
    "torch.cuda.get_device_properties('cuda').shared_memory_per_block_optin": (166912, 232448),
    "torch.cuda.get_device_properties(0).major": (8, 9),
    "torch.cuda.get_arch_list()": (["sm_80"], ["sm_90"]),
    "torch.cuda.is_bf16_supported()": (True, True),
    "torch.version.hip is None and torch.version.cuda is not None": (True, True),
    "torch.accelerator.is_available()": (True, True),
    "torch.accelerator.current_accelerator().type": ("cuda", "cuda"),
    "str(triton.runtime.driver.active.get_active_torch_device())": ("cuda:0", "cuda:0"),
    "triton.runtime.driver.active.get_device_interface().is_available()": (True, True),
    "torch.utils._triton.has_triton()": (True, True),
    "torch.utils._triton.has_triton_tma()": (False, True),
    "DeviceProperties.create(torch.device('cuda', 0)).multi_processor_count": (108, 132),
    "capability()": ([8, 0], [9, 0]),
}


def source(questions: dict[str, tuple[Any, Any]], imports: str) -> str:
    """A source that prints the answers on a line."""
    asked = "".join(f"    {question!r}: {question},\n" for question in questions)
    return f"import json, sys\nimport triton.backends\n{imports}{KERNEL}\nprint('told', json.dumps({{\n{asked}}}))\n"


def told(stderr: str) -> list[Any]:
    """What each import of `source` printed."""
    return [json.loads(line.removeprefix("told ")) for line in stderr.splitlines() if line.startswith("told ")]


@pytest.mark.parametrize(
    ("questions", "imports"),
    [
        (TRITON, ""),
        (TORCH, "import torch.utils._triton\nfrom torch._inductor.runtime.hints import DeviceProperties\nfrom torch.cuda import get_device_capability as capability\n"),
    ],
    ids=["Triton", "torch"],
)  # fmt: skip
def test_a_source_is_told_of_each_target(project: Make, questions: dict[str, Any], imports: str) -> None:
    built = project().write(a_py=source(questions, imports)).build(entry("a", "a.py:k"), words=("--dry-run", *BOTH))
    assert built.code == 0, built.stderr
    assert told(built.stderr) == [
        {question: answers[number] for question, answers in questions.items()} for number in range(2)
    ]


# packages bring copies of NVML's bindings, which on a machine without a driver raise
NVML = """
class NVMLError(Exception):
    pass


def nvmlInit():
    raise NVMLError


nvmlShutdown = nvmlDeviceGetCount = nvmlInit


def nvmlDeviceGetHandleByIndex(index):
    raise NVMLError


def nvmlDeviceGetName(handle):
    raise NVMLError


nvmlDeviceGetCudaComputeCapability = nvmlDeviceGetMemoryInfo = nvmlDeviceGetName
"""


def test_nvml_tells_of_the_target(project: Make) -> None:
    imports = textwrap.dedent("""
        from mine.third_party import pynvml
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    """)
    questions = {
        "pynvml.nvmlDeviceGetCount()": (1, 1),
        "pynvml.nvmlDeviceGetCudaComputeCapability(handle)": ([8, 0], [9, 0]),
        "pynvml.nvmlDeviceGetMemoryInfo(handle).total": (80 << 30, 80 << 30),
    }
    made = project().write({"mine/third_party/pynvml.py": NVML}, a_py=source(questions, imports))
    built = made.build(entry("a", "a.py:k"), words=("--dry-run", *BOTH))
    assert built.code == 0, built.stderr
    assert told(built.stderr) == [{name: each[number] for name, each in questions.items()} for number in range(2)]


CHOOSING = """
import torch
import triton
import triton.language as tl

if torch.cuda.is_available() and torch.cuda.get_device_capability()[0] >= 9:
    fast = tl.exp2
else:
    fast = tl.exp


@triton.jit
def k(out_ptr, V: tl.constexpr):
    tl.store(out_ptr, fast(tl.load(out_ptr)) + V)
"""


def test_each_arch_has_the_kernel_that_a_module_chooses_on_it(project: Make) -> None:
    made = project().write(a_py=CHOOSING, exp_py=KERNEL, exp2_py=KERNEL.replace("tl.exp(", "tl.exp2("))
    built = made.build(entry("a", "a.py:k"), entry("exp", "exp.py:k"), entry("exp2", "exp2.py:k"), words=BOTH)
    assert built.code == 0, built.stderr
    old, new = built.images("sm_80"), built.images("sm_90")
    assert old["a"] == old["exp"] != old["exp2"]
    assert new["a"] == new["exp2"] != new["exp"]


PLACEHOLDER = """
import triton
import triton.language as tl
from triton.backends import backends

active = [backend.driver for backend in backends.values() if backend.driver.is_active()]
jit = triton.jit if len(active) == 1 else lambda function: function


@jit
def k(out_ptr, V: tl.constexpr):
    tl.store(out_ptr, V)
"""


def test_kernels_do_not_vanish_for_want_of_a_gpu(project: Make) -> None:
    built = project().write(a_py=PLACEHOLDER).build(entry("a", "a.py:k"), words=("--dry-run",), CUDA_VISIBLE_DEVICES="")
    assert built.code == 0, built.stderr


# modules that choose not to have a kernel, and what is said of it
CHOICES = {
    "import torch, triton\njit = triton.jit if torch.cuda.device_count() > 1 else lambda f: f\n@jit\ndef k(out_ptr, V):\n    pass\n": (
        "expected a @triton.jit function, got function a0.py:k; its import queried the target: torch.cuda.device_count() = 1 - at"
    ),
    "from triton.runtime import driver\nimport triton\nif driver.active.get_device_capability(0) >= (9, 0):\n    @triton.jit\n    def k(out_ptr, V):\n        pass\n": (
        "expected a function of a1.py, got 'k'; its import queried the target: driver.active.get_device_capability() = (8, 0) - at"
    ),
    "from triton.runtime import driver\nassert driver.active.get_device_capability(0) >= (9, 0), 'Hopper only'\n": (
        "got AssertionError: Hopper only; its import queried the target: driver.active.get_device_capability() = (8, 0) - at"
    ),
    "def k(out_ptr, V):\n    pass\n": "expected a @triton.jit function, got function a3.py:k - at",
    f"{KERNEL}\nk[(1,)](1, 1)\n": (
        "expected no launch while a source is imported or compiled"
    ),
}  # fmt: skip


def test_what_becomes_of_a_choice_names_what_was_told(project: Make) -> None:
    made = project().write(**{f"a{number}_py": text for number, text in enumerate(CHOICES)})
    entries = [entry(f"k{number}", f"a{number}.py:k") for number in range(len(CHOICES))]
    built = made.build(*entries, words=("--dry-run",))
    assert built.code == 1
    for message in CHOICES.values():
        assert message in built.stderr


def test_what_an_arch_does_not_say_is_noted_once(project: Make) -> None:
    asks = KERNEL + "\nSMS = triton.runtime.driver.active.utils.get_device_properties(0)['multiprocessor_count']\n"
    made = project().write(a_py=asks, b_py=asks)
    entries = entry("a", "a.py:k"), entry("b", "b.py:k")
    said = made.build(*entries, words=("--dry-run", *BOTH)).stderr.splitlines()
    assert [line for line in said if "multiprocessor_count" in line] == [
        f"{arch}: imports of sources asked about the GPU and got the answers of a common device, {name}: "
        f"driver.active.utils.get_device_properties()['multiprocessor_count'] = {count}"
        for arch, name, count in (
            ("sm_80", "NVIDIA A100-SXM4-80GB", 108),
            ("sm_90", "NVIDIA H100 80GB HBM3", 132),
        )
    ]
    assert made.build(*entries, words=("--dry-run", "--quiet", *BOTH)).stderr == ""


def test_a_source_that_asks_nothing_is_imported_once(project: Make) -> None:
    plain = f"{KERNEL}\nprint('imported')\n"
    asks = plain.replace("import triton\n", "import triton\ntriton.runtime.driver.active.get_current_target()\n")
    for text, times in ((plain, 1), (asks, 2)):
        built = project().write(a_py=text).build(entry("a", "a.py:k"), entry("b", "a.py:k"), words=("--dry-run", *BOTH))
        assert built.code == 0, built.stderr
        assert built.stderr.splitlines().count("imported") == times


def test_sources_that_are_imported_at_once_are_told_of_their_own_arch(project: Make) -> None:
    asks = f"{KERNEL}\nprint(__name__, triton.runtime.driver.active.get_current_target().arch)\n"
    plain = f"{KERNEL}\nprint(__name__, 'any')\n"
    made = project().write({f"m{number}.py": (asks, plain)[number % 2] for number in range(6)})
    entries = [entry(f"k{number}{more}", f"m{number}:k") for number in range(6) for more in "ab"]
    built = made.build(*entries, words=("--dry-run", "-j", "4", *BOTH))
    assert built.code == 0, built.stderr
    expected = [f"m{number} {arch}" for number in range(6) for arch in ((80, 90), ("any",))[number % 2]]
    assert sorted(line for line in built.stderr.splitlines() if line.startswith("m")) == expected
