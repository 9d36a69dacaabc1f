"""What counts as a patch of Triton: what a source changes, and not what Python notes in classes and modules."""

import copy

import pytest
from nojit.aot.patches import Baseline

pytestmark = pytest.mark.triton


def test_what_python_notes_is_no_patch(monkeypatch: pytest.MonkeyPatch) -> None:
    import triton
    import triton.language as tl

    for kind in (tl.constexpr, tl.core.constexpr_type):
        if "__slotnames__" in vars(kind):
            monkeypatch.delattr(kind, "__slotnames__")
    before = Baseline()

    # as a worker does whose job is pickled, or whose kernels are compiled
    copy.copy(tl.constexpr(1))
    assert "__slotnames__" in vars(tl.constexpr)
    monkeypatch.setitem(vars(triton), "__warningregistry__", {})

    assert before.patched() == []
    assert before.digest() == ""


def test_what_a_source_patches_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import triton
    import triton.language as tl

    before = Baseline()
    monkeypatch.setattr(tl.constexpr, "__add__", lambda one, other: one)
    monkeypatch.setattr(triton, "next_power_of_2", lambda n: n)

    patched = before.patched()

    assert "triton.next_power_of_2" in patched
    assert any(name.endswith("constexpr.__add__") for name in patched)
    assert before.digest()
