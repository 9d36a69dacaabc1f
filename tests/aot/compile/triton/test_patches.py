"""What counts as a patch of Triton: what a source changes, and not what Python notes in classes and modules."""

import copy
from collections.abc import Callable

import pytest
from nojit.aot.compile.triton.patches import Baseline

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


def _code(monkeypatch: pytest.MonkeyPatch) -> str:
    from triton.language.semantic import TritonSemantic

    monkeypatch.setattr(TritonSemantic.add, "__code__", TritonSemantic.sub.__code__)
    return "triton.language.semantic.TritonSemantic.add"


def _defaults(monkeypatch: pytest.MonkeyPatch) -> str:
    import triton.language as tl

    monkeypatch.setattr(tl.core.dot.__wrapped__, "__defaults__", (None,))
    return "triton.language.core.dot"


def _table(monkeypatch: pytest.MonkeyPatch) -> str:
    from triton.compiler.code_generator import CodeGenerator

    monkeypatch.setitem(CodeGenerator.statically_implemented_functions, len, lambda *_: 3)
    return "triton.compiler.code_generator.CodeGenerator.statically_implemented_functions"


@pytest.mark.parametrize("patch", [_code, _defaults, _table])
def test_what_is_changed_in_place_is_a_patch(
    monkeypatch: pytest.MonkeyPatch, patch: Callable[[pytest.MonkeyPatch], str]
) -> None:
    pytest.importorskip("triton.compiler.code_generator")
    pytest.importorskip("triton.language.semantic")
    before = Baseline()
    name = patch(monkeypatch)
    assert name in before.patched()
    monkeypatch.undo()
    assert before.patched() == []


def test_functions_that_a_source_decorates_are_no_patch() -> None:
    import triton

    before = Baseline()
    assert triton.jit(_nothing).fn is _nothing
    assert before.patched() == []


def _nothing() -> None:
    pass
