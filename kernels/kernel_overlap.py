"""How a kernel overlaps with the one before it, in Triton: programmatic dependent launch, where the architecture has it.

The kernel that is launched later sets the option ``launch_pdl`` and calls `wait_for_last` before it reads what the earlier one
wrote. The earlier one calls `let_next_start`; without, the later one starts when it has ended.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
# (a kernel's parameters are typed by its manifest, and Triton's decorators carry no types)

import triton
import triton.language as tl


@triton.jit
def let_next_start():
    """Let the next kernel of the stream be launched as soon as all programs of this one have come so far."""
    if tl.target_info.cuda_capability_geq(9, 0):
        tl.extra.cuda.gdc_launch_dependents()


@triton.jit
def wait_for_last():
    """Wait until the kernel before this one in its stream has ended and what it wrote can be read."""
    if tl.target_info.cuda_capability_geq(9, 0):
        tl.extra.cuda.gdc_wait()
