"""The server of the examples on the CPU: its model by each backend, its answers, and what it refuses."""

from __future__ import annotations

import argparse
import asyncio
import json
import queue
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from http.client import HTTPConnection
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from nojit import runtime
from nojit.kernels import library
from nojit.kernels.calls import tensor_maps

from tests.kernels.interpreter import Interpreter
from tests.support.digests import with_digests

pytest.importorskip("uvicorn")
testclient = pytest.importorskip("starlette.testclient")

FOLDER = Path(__file__).resolve().parents[2] / "examples/inference_server"
MODULES = (
    "app",
    "backends",
    "client",
    "engine",
    "metrics",
    "model",
    "own",
    "plain",
    "preload",
    "server",
    "shape",
    "slots",
)
CPU = torch.device("cpu")
PROMPTS = ([5, 9, 200, 17, 3], [1], list(range(60)))


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """The example's modules, which are forgotten again."""
    monkeypatch.syspath_prepend(FOLDER)
    yield SimpleNamespace(**{name: import_module(name) for name in MODULES})
    for name in MODULES:
        sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def own_kernels() -> Iterator[Interpreter]:
    """The process in which the example's own kernels are interpreted."""
    interpreter = Interpreter(FOLDER)
    yield interpreter
    interpreter.close()


@pytest.fixture
def interpreted(interpreter: Interpreter, own_kernels: Interpreter, example: SimpleNamespace) -> Iterator[None]:
    """Have the model take nojit's kernels and its own from interpreters."""
    own = example.preload.OWN
    with library.override(lambda name: (own_kernels if name in own else interpreter)(name)):
        yield


def make_model(example, backend="torch"):
    return example.model.Decoder(example.shape.SMALL, example.backends.make_backend(backend), CPU, torch.float32)


def answer(model, prompts, steps, temperature=0.0):
    """Return the tokens that each prompt is answered with, side by side."""
    tokens = [[model.start(slot, prompt, temperature, seed=slot)] for slot, prompt in enumerate(prompts)]
    for _ in range(steps):
        for made, token in zip(tokens, model.step(), strict=False):
            made.append(token)
    return tokens


# -- the model --------------------------------------------------------------------------------------------------------


def test_a_step_says_what_reading_everything_anew_says(example):
    model = make_model(example)
    tokens = answer(model, PROMPTS, steps=4)
    assert len({tuple(made) for made in tokens}) == 3
    for prompt, made in zip(PROMPTS, tokens, strict=True):
        for count in range(1, 5):
            assert make_model(example).start(1, [*prompt, *made[:count]]) == made[count]


def test_a_slot_that_was_released_is_as_new(example):
    model = make_model(example)
    answer(model, PROMPTS, steps=3)
    for slot in range(3):
        model.release(slot)
    # more steps than there is room for: nothing moves where nobody is
    for _ in range(example.shape.SMALL.context + 1):
        model.step()
    assert answer(model, PROMPTS[::-1], steps=3) == answer(make_model(example), PROMPTS[::-1], steps=3)


@pytest.mark.usefixtures("interpreted")
def test_nojits_kernels_answer_as_torch_does(example):
    prompts = [prompt[:9] for prompt in PROMPTS]
    assert answer(make_model(example, "nojit"), prompts, 2) == answer(make_model(example), prompts, 2)


@pytest.mark.usefixtures("interpreted")
def test_draws_follow_from_the_seed_whatever_runs_beside(example):
    prompts = [prompt[:2] for prompt in PROMPTS]
    drawn = answer(make_model(example, "nojit"), prompts, 1, temperature=8.0)
    assert drawn != answer(make_model(example, "nojit"), prompts, 1)
    model = make_model(example, "nojit")
    assert [model.start(2, prompts[1], 8.0, seed=1), model.step()[2]] == drawn[1]
    # what is read anew is drawn anew alike
    assert model.start(0, [*prompts[1], drawn[1][0]], 8.0, seed=1) == drawn[1][1]
    assert model.start(0, prompts[1], 8.0, seed=4) != drawn[1][0]


# -- its own kernels --------------------------------------------------------------------------------------------------


def slots_at(example, lens, temperatures, seeds):
    slots = example.slots.Slots.empty(len(lens), CPU)
    for held, given in ((slots.lens, lens), (slots.temperatures, temperatures), (slots.seeds, seeds)):
        held.copy_(torch.tensor(given))
    return slots


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("width", [96, 2000])
def test_rows_are_those_of_the_tokens(width, example):
    words, tokens = torch.randn(40, width), torch.tensor([7, 0, 39, 7], dtype=torch.int32)
    assert torch.equal(example.own.embed(words, tokens), words[tokens])


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize(("own", "shared", "dim"), [(4, 2, 16), (16, 4, 128), (1, 1, 64), (7, 1, 16)])
@pytest.mark.parametrize("lens", [None, [5, 1, 20]])
def test_heads_are_turned_and_kept_as_by_torch(lens, own, shared, dim, example):
    heads, turns = torch.randn(3, own + 2 * shared, dim), [torch.randn(20, dim // 2).repeat(1, 2) for _ in range(2)]
    lengths = None if lens is None else torch.tensor(lens, dtype=torch.int32)
    found = []
    for placing in (example.own.placing, example.plain.placing):
        caches = [torch.zeros(3, shared, 20, dim) for _ in range(2)]
        found.append((placing(*turns, lengths)(heads.clone(), *caches), *caches))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.usefixtures("interpreted")
def test_heads_of_bf16_are_rounded_once(example):
    heads = torch.randn(2, 6, 16, dtype=torch.bfloat16)
    turns = [torch.randn(4, 8).repeat(1, 2).bfloat16() for _ in range(2)]
    caches = [torch.zeros(1, 2, 4, 16, dtype=torch.bfloat16) for _ in range(2)]
    wide = [torch.zeros(1, 2, 4, 16) for _ in range(2)]
    expected = example.plain.placing(*(each.float() for each in turns), None)(heads.float(), *wide)
    q = example.own.placing(*turns, None)(heads, *caches)
    for ours, exact in ((q, expected), *zip(caches, wide, strict=True)):
        torch.testing.assert_close(ours, exact.bfloat16(), rtol=2**-8, atol=1e-6)


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("vocabulary", [300, 8192, 20_000])
def test_the_likeliest_token_is_the_first_of_the_best(vocabulary, example):
    scores = torch.randn(3, vocabulary, dtype=torch.bfloat16)
    scores[0, [vocabulary - 1, 5]] = 99.0
    scores[1, vocabulary - 1] = 99.0
    # what is no number is none of them, even where there is nothing else
    scores[2] = torch.nan
    slots = slots_at(example, [4, 1, 9], [0.0] * 3, [1, 2, 3])
    example.own.choose_next(scores, slots)
    assert slots.tokens.tolist() == [5, vocabulary - 1, 0]
    assert slots.lens.tolist() == [5, 1, 10]


@pytest.mark.usefixtures("interpreted")
def test_a_first_token_has_its_sequence_begin(example):
    slots = slots_at(example, [4, 1, 9], [0.0] * 3, [1, 2, 3])
    scores = torch.randn(1, 300)
    example.own.choose_first(scores, slots, example.slots.Prompt(1, 17, 0.5, 40))
    assert slots.lens.tolist() == [4, 18, 9]
    assert slots.temperatures.tolist() == [0.0, 0.5, 0.0]
    assert slots.seeds.tolist() == [1, 40, 3]
    first = int(slots.tokens[1])
    # a step that stands where the prompt ended draws the same
    slots.lens[1] = 17
    example.own.choose_next(scores.repeat(3, 1), slots)
    assert int(slots.tokens[1]) == first


@pytest.mark.parametrize("backend", ["torch", "nojit"])
@pytest.mark.usefixtures("interpreted")
def test_a_temperature_draws_from_the_softmax_of_its_own_row(backend, example):
    rows = 500
    scores = torch.full((rows, 64), -1e9)
    scores[:, 3], scores[:, 7] = 0.0, 2.0
    choose = example.backends.make_backend(backend).choose_next
    slots = slots_at(example, [5] * rows, [2.0] * rows, range(rows))
    choose(scores, slots)
    assert float((slots.tokens == 7).float().mean()) == pytest.approx(0.731, abs=0.08)
    assert set(slots.tokens.tolist()) == {3, 7}
    # and so it is along a sequence, whose seed stays
    along = slots_at(example, range(2, rows + 2), [2.0] * rows, [11] * rows)
    choose(scores, along)
    assert float((along.tokens == 7).float().mean()) == pytest.approx(0.731, abs=0.08)
    cold = slots_at(example, [5] * rows, [0.0] * rows, range(rows))
    choose(scores, cold)
    assert (cold.tokens == 7).all()


# -- processes without Triton, and with its JIT ------------------------------------------------------------------------


CHILD = """
import sys
sys.path.insert(0, sys.argv[1])
import torch
from backends import begin, make_backend
from model import Decoder
from shape import SMALL

cpu, made = torch.device("cpu"), []
for name in ("torch", "jit"):
    with begin(name, cpu):
        model = Decoder(SMALL, make_backend(name), cpu, torch.float32)
        made.append([model.start(0, [5, 9, 200, 17]), model.start(2, [7]), *model.step()[::2], *model.step()[::2]])
assert made[0] == made[1], made
"""


@pytest.mark.triton
def test_the_jit_finds_the_same_kernels_in_the_manifests(monkeypatch):
    # a process of its own, where Triton interprets instead
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    subprocess.run([sys.executable, "-c", CHILD, FOLDER], check=True, timeout=600)


ON_SM90 = """
import sys
sys.path.insert(0, sys.argv[1])
from types import SimpleNamespace
import torch
from backends import HERE, MANIFESTS, make_backend
from jit import JitKernels, triton_arguments
from model import Decoder
from nojit.kernels import library
from nojit.kernels.calls import tensor_maps
from nojit.kernels.manifest_kernels import by_position
from nojit.runtime import KernelNotFoundError
from preload import EVERYWHERE, FASTER, ON_HOPPER, launched
from shape import Shape

facts = SimpleNamespace(major=9, minor=0, multi_processor_count=132)
tensor_maps.has_maps, tensor_maps._facts = lambda device: True, lambda device: facts
kernels, asked = JitKernels((MANIFESTS, HERE), 90), set()
# so deep that the product of 65 rows is divided into parts
shape = Shape(layers=1, width=2048, heads=16, kv_heads=4, inner=14336, vocabulary=512, context=4096)
loaded = launched(shape.dim)

def provide(name):
    kernel = kernels(name)

    def launch(*args, **named):
        asked.add(name)
        args, constexprs = by_position(name, args, named)
        for key in constexprs.keys() & loaded.keys():
            several = isinstance(loaded[key], set)
            assert constexprs[key] in (loaded[key] if several else [loaded[key]]), (name, key, constexprs[key])
        chosen = kernel._choose(args, constexprs)
        assert min(chosen.grid) > 0
        assert not any(isinstance(each, tensor_maps.Described) for each in triton_arguments(args, chosen))

    return launch

with library.override(provide):
    model = Decoder(shape, make_backend("nojit"), torch.device("cpu"), torch.bfloat16)
    for length in (1, 17, 65, 512):
        model.start(0, [1] * length)
        model.step()
used = {*EVERYWHERE, *ON_HOPPER}
# products that its tuned table has measured: this model has none
assert asked == used - {"bmm_sm90"}, asked

def provide_untiled(name):
    if name in FASTER:
        raise KernelNotFoundError("expected a kernel", got=f"none with {name!r}")
    return provide(name)

asked.clear()
with library.override(provide_untiled):
    model.start(0, [1] * 512)
assert "bmm_sm90" in asked and asked < used - {*FASTER}, asked
"""


@pytest.mark.triton
def test_on_sm90_the_jit_finds_all_that_is_preloaded_there():
    subprocess.run([sys.executable, "-c", ON_SM90, FOLDER], check=True, timeout=600)


NO_TRITON = """
import sys
sys.modules["triton"] = None
sys.path.insert(0, sys.argv[1])
import app, torch
from backends import make_backend
from model import Decoder
from nojit.kernels import library
from preload import ELSEWHERE, EVERYWHERE
from shape import SMALL

asked, cpu = set(), torch.device("cpu")

def provide(name):
    asked.add(name)
    return lambda *args, **constexprs: None

with library.override(provide):
    model = Decoder(SMALL, make_backend("nojit"), cpu, torch.bfloat16)
    for prompt in ([1], [1, 2, 3]):
        model.start(0, prompt)
        model.step()
assert asked <= {*EVERYWHERE, *ELSEWHERE}, asked
assert asked >= {"bmm", "flash_attention_fwd", "flex_decoding_one", "rms_norm_fwd", "swiglu", "swiglu_rectangles"}, asked
assert not [name for name in sys.modules if name.startswith("triton.")]
"""


def test_serving_from_a_bundle_imports_no_triton_and_launches_what_is_preloaded():
    subprocess.run([sys.executable, "-c", NO_TRITON, FOLDER], check=True, timeout=600)


ALLOCATIONS = {"empty", "empty_like", "empty_strided", "new_empty"}
VIEWS = {"as_strided", "chunk", "narrow", "reshape", "select", "slice", "split", "transpose", "unsqueeze", "view"}
TO_AND_FROM_THE_HOST = {"_local_scalar_dense", "_to_copy", "copy_", "detach_", "item", "lift_fresh", "to"}
OF_NUMBERS = {"resolve_conj", "resolve_neg"}


@pytest.mark.parametrize("over_maps", [False, True])
def test_a_request_launches_no_kernel_of_torchs(over_maps, example, monkeypatch):
    facts = SimpleNamespace(major=9, minor=0, multi_processor_count=132)
    if over_maps:
        monkeypatch.setattr(tensor_maps, "has_maps", lambda _: True)
        monkeypatch.setattr(tensor_maps, "_facts", lambda _: facts)
    shape = example.model.Shape(layers=1, width=512, heads=4, kv_heads=1, inner=1024, vocabulary=512, context=1024)
    asked = set()
    with library.override(lambda name: lambda *_, **__: asked.add(name)):
        model = example.model.Decoder(shape, example.backends.make_backend("nojit"), CPU, torch.bfloat16)
        for length in (1, 17, 512):
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiled:
                model.start(0, [1] * length, 0.5)
                model.step()
                model.release(0)
            called = {event.key.removeprefix("aten::") for event in profiled.key_averages() if "aten::" in event.key}
            assert called <= ALLOCATIONS | VIEWS | TO_AND_FROM_THE_HOST | OF_NUMBERS
    assert ("flash_attention_fwd_sm90" in asked) == over_maps


class Counted:
    """A kernel that counts what it is asked for."""

    def __init__(self, counts: Counter[str]) -> None:
        self._counts = counts

    def __call__(self, *_: object, **__: object) -> None:
        self._counts["launched"] += 1

    def warmup(self, *_: object, **__: object) -> None:
        self._counts["chosen"] += 1


def test_a_rehearsal_chooses_all_that_a_request_launches(example):
    counts: Counter[str] = Counter()
    with library.override(lambda _: Counted(counts)):
        model = make_model(example, "nojit")
        model.rehearse([5])
        assert counts["launched"] == 0
        chosen = counts["chosen"]
        model.start(1, [1] * 5)
        model.step()
        # the rehearsal passes one layer
        assert chosen < counts["launched"] < 2 * chosen
        assert counts["chosen"] == chosen
    assert model._slots.lens.tolist() == [1, 1, 1]


def test_who_has_nothing_to_choose_rehearses_nothing(example, monkeypatch):
    model = make_model(example)
    monkeypatch.setattr(example.model.Decoder, "start", None)
    model.rehearse([5])
    assert example.backends.make_backend("jit").rehearsing is None


@pytest.mark.slow
@pytest.mark.triton
def test_a_bundle_of_its_own_kernels_serves_it_with_every_hint(example, tmp_path):
    words = ["--arch", "sm_90", "--out", tmp_path, "--cache-dir", with_digests(tmp_path / "cache"), "-q"]
    build = [sys.executable, "-m", "nojit", "build", FOLDER / "decoder.toml", *words]
    subprocess.run(build, check=True, timeout=300)
    report = json.loads(next(tmp_path.glob("*.report.json")).read_text())
    assert {variant["spill_bytes"] for variant in report["variants"]} == {0}
    bundle, asked = runtime.load(tmp_path), set()

    def provide(name):
        def launch(*args, **constexprs):
            if name in bundle.kernels:
                chosen = bundle.kernel(name).explain(*args, arch="sm_90", **constexprs).chosen
                asked.add((name, ":16" in chosen))

        return launch

    shape = example.model.Shape(layers=1, context=128)
    with library.override(provide):
        model = example.model.Decoder(shape, example.backends.make_backend("nojit"), CPU, torch.bfloat16)
        model.start(3, [1] * 5, 0.5, seed=7)
        model.step()
    assert asked == {(name, True) for name in example.preload.OWN}


# -- what begins beside the model --------------------------------------------------------------------------------------


def test_kernels_are_loaded_before_torch_is_imported():
    begins = "import sys; sys.path.insert(0, sys.argv[1]); import server, preload; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", begins, FOLDER], check=True, timeout=600)


@pytest.fixture
def preloading(example, monkeypatch):
    """What a preload does: waits to be let go, and then raises an error if there is one."""
    held = SimpleNamespace(go=threading.Event(), error=None)

    def preload(_ordinal, _dim):
        assert held.go.wait(30)
        if held.error:
            raise held.error
        return 75

    monkeypatch.setattr(example.preload, "preload", preload)
    return held


def test_images_are_loaded_beside_whatever_else_is_done(example, preloading):
    begun = example.backends.begin("nojit", CPU)
    # the thread waits for this one
    preloading.go.set()
    with begun as count:
        assert count == 75


def test_a_server_without_its_kernels_does_not_start(example, engine, preloading):
    preloading.error = library.KernelNotFoundError("expected a bundle that holds the kernel", got="none with 'bmm'")
    begun = example.backends.begin("nojit", CPU)
    preloading.go.set()
    with (
        pytest.raises(
            RuntimeError, match=r"the kernels of the model could not be loaded: .*got none with 'bmm'"
        ) as why,
        testclient.TestClient(example.app.Server(engine, begun).app()),
    ):
        pytest.fail("it started")
    assert why.value.__cause__ is preloading.error
    assert not engine.alive


def test_torch_has_nothing_to_begin(example, preloading):
    preloading.error = AssertionError("it was asked for")
    with example.backends.begin("torch", CPU) as begun:
        assert begun is None


# -- the server -------------------------------------------------------------------------------------------------------


class Held:
    """Makes a model wait in its next step until it is let go."""

    def __init__(self, model) -> None:
        self.step, self.inside, self.go = model.step, threading.Event(), threading.Event()
        model.step = self

    def __call__(self) -> list[int]:
        self.inside.set()
        assert self.go.wait(30)
        return self.step()


@pytest.fixture
def engine(example):
    return example.engine.Engine(make_model(example))


@pytest.fixture
def client(example, engine):
    with testclient.TestClient(example.app.Server(engine).app()) as client:
        yield client


def generate(client, **said):
    with client.stream("POST", "/generate", json={"prompt": [5, 9, 200, 17, 3], **said}) as answer:
        return answer.status_code, [json.loads(line) for line in answer.iter_lines()]


def test_tokens_come_a_line_each(client, example):
    (expected,) = answer(make_model(example), PROMPTS[:1], steps=3)
    for _ in range(5):
        assert generate(client, max_tokens=4) == (200, [*({"token": token} for token in expected), {"done": True}])
    assert generate(client, max_tokens=1) == (200, [{"token": expected[0]}, {"done": True}])


def test_requests_side_by_side_get_what_each_would_get_alone(client, example):
    alone = [generate(client, prompt=prompt, max_tokens=9)[1] for prompt in PROMPTS]
    together: dict[int, object] = {}

    def ask(number):
        together[number] = generate(client, prompt=PROMPTS[number], max_tokens=9)[1]

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [together[number] for number in range(3)] == alone


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"{", 400, "body: expected JSON"),
        (b"\xff", 400, "body: expected JSON"),
        (b"[]", 400, "body: expected an object, got list"),
        (b'{"prompt": [1], "seed": 3}', 422, "expected prompt, max_tokens, temperature, got ['seed']"),
        (b'{"prompt": [1], "\\ud800": 3}', 422, r"got ['\ud800']"),
        (b'{"prompt": "\\ud800"}', 422, r"got '\ud800'"),
        (b"{}", 422, "prompt: expected a list of tokens, got None"),
        (b'{"prompt": []}', 422, "prompt: expected a list of tokens, got []"),
        (b'{"prompt": [1, 300]}', 422, "prompt: expected tokens from 0 to 299, got 300"),
        (b'{"prompt": [true]}', 422, "got True"),
        (b'{"prompt": [-1]}', 422, "got -1"),
        (b'{"prompt": [1], "max_tokens": 0}', 422, "max_tokens: expected 1 or more, got 0"),
        (b'{"prompt": [1], "max_tokens": 1.0}', 422, "max_tokens: expected 1 or more, got 1.0"),
        (b'{"prompt": [1], "max_tokens": 128}', 422, "expected 128 together at most, got 1 and 128"),
        (b'{"prompt": [1], "temperature": -1}', 422, "temperature: expected 0 to 100, got -1"),
        (b'{"prompt": [1], "temperature": NaN}', 422, "temperature: expected 0 to 100, got nan"),
        (b'{"prompt": [1], "temperature": "hot"}', 422, "temperature: expected 0 to 100, got 'hot'"),
        (b" " * (1 << 20) + b"{}", 413, "body: expected at most 1048576 bytes"),
        (b"[" * 100_000, 400, "body: expected JSON"),
    ],
)
def test_wrong_requests_are_told_what_is_wrong(body, status, words, client):
    refused = client.post("/generate", content=body)
    assert refused.status_code == status
    assert words in refused.json()["error"]
    assert client.get("/health").status_code == 200


def test_a_full_queue_is_said(client, engine, example):
    held, engine._queue = Held(engine.model), 1
    first = threading.Thread(target=generate, args=(client,))
    first.start()
    assert held.inside.wait(30)
    told: list[object] = []
    # there is a slot for it, but nobody to give it one
    engine.submit(example.engine.Request((1,), 1, 0.0, told.append))
    status, (said,) = generate(client)
    assert (status, said) == (503, {"error": "expected fewer than 1 requests that wait"})
    held.go.set()
    first.join()
    assert generate(client, max_tokens=2)[0] == 200
    assert len(told) == 2
    assert engine.counts["refused"] == 1


def test_a_step_that_fails_ends_what_was_under_way_alone(client, engine, caplog):
    step = engine.model.step

    def fail():
        engine.model.step = step
        raise RuntimeError("the kernel went wrong")

    whole = generate(client, max_tokens=3)
    engine.model.step = fail
    status, lines = generate(client, max_tokens=3)
    assert status == 200
    assert lines == [whole[1][0], {"error": "RuntimeError: the kernel went wrong"}]
    assert "a step failed" in caplog.text
    assert generate(client, max_tokens=3) == whole
    assert engine.counts["failed"] == 1


def test_who_waits_and_goes_away_leaves_room(client, engine, example):
    held, engine._queue = Held(engine.model), 1
    first = threading.Thread(target=generate, args=(client,))
    first.start()
    assert held.inside.wait(30)
    told: list[object] = []
    waiting, other = (example.engine.Request((1,), 2, 0.0, told.append) for _ in range(2))
    engine.submit(waiting)
    engine.cancel(waiting)
    engine.submit(other)
    held.go.set()
    first.join()
    assert generate(client, max_tokens=2)[0] == 200
    assert len(told) == 3
    assert (engine.counts["cancelled"], engine.counts["refused"]) == (1, 0)


@pytest.mark.parametrize("version", ["2.3", "2.4"])
def test_who_goes_away_at_once_gets_no_further_step(version, engine, example):
    held = Held(engine.model)
    messages = [{"type": "http.request", "body": b'{"prompt": [1], "max_tokens": 100}'}, {"type": "http.disconnect"}]

    async def receive():
        return messages.pop(0)

    async def send(message):
        # what servers of the newer version raise for who is gone
        if version == "2.4":
            raise OSError

    scope = {"type": "http", "method": "POST", "path": "/generate", "headers": [], "query_string": b""}
    engine.start()
    app = example.app.Server(engine).app()
    with suppress(example.app.requests.ClientDisconnect):
        asyncio.run(app({**scope, "asgi": {"spec_version": version}}, receive, send))
    held.go.set()
    # two may be admitted at once, and who is gone by then ends when the next are: before the third token of the other
    engine.submit(example.engine.Request((1,), 3, 0.0, (done := queue.SimpleQueue()).put))
    assert [type(done.get(timeout=600)) for _ in range(4)] == [int, int, int, type(None)]
    engine.stop()
    assert engine.counts["cancelled"] == 1
    assert engine.counts["tokens"] <= 1 + 3


@pytest.mark.parametrize("after", [0, 2])
def test_a_listener_that_is_gone_is_nobody_elses_loss(after, engine, example):
    def listen(update):
        told.append(update)
        if len(told) > after:
            raise RuntimeError("Event loop is closed")

    told: list[object] = []
    engine.submit(example.engine.Request((1,), 100, 0.0, listen))
    # it takes steps after those of the other
    engine.submit(example.engine.Request((1,), 6, 0.0, (kept := queue.SimpleQueue()).put))
    engine.start()
    assert [type(kept.get(timeout=600)) for _ in range(7)] == [int] * 6 + [type(None)]
    engine.stop()
    # the update that found it gone, and what ended it
    assert len(told) == after + 2
    assert told[-1] is None
    assert engine.counts == {"cancelled": 1, "done": 1, "tokens": after + 1 + 6}


def test_a_server_rehearses_in_the_thread_that_will_serve(example, engine, monkeypatch):
    rehearsed = []
    monkeypatch.setattr(
        engine.model, "rehearse", lambda lengths: rehearsed.append((*lengths, threading.current_thread()))
    )
    with testclient.TestClient(example.app.Server(engine, rehearsed=(4, 16, 4096)).app()) as client:
        assert rehearsed == [(4, 16, engine._thread)]
        assert client.get("/health").status_code == 200
        # what was answered beforehand is nobody's
        assert engine.counts == {}


def test_a_server_whose_rehearsal_fails_does_not_start(example, engine, monkeypatch):
    monkeypatch.setattr(engine.model, "rehearse", None)
    with (
        pytest.raises(TypeError, match="not callable"),
        testclient.TestClient(example.app.Server(engine, rehearsed=(4,)).app()),
    ):
        pytest.fail("it started")
    assert not engine.alive
    told = queue.SimpleQueue()
    with pytest.raises(example.engine.BusyError):
        engine.submit(example.engine.Request((1,), 1, 0.0, told.put))


def test_a_server_may_answer_itself_first(example, engine):
    with testclient.TestClient(example.app.Server(engine, warm=5).app()) as client:
        assert client.get("/health").status_code == 200
        assert (engine.counts["done"], engine.counts["tokens"]) == (1, 2)


def test_a_server_that_cannot_answer_itself_does_not_start(example, engine, monkeypatch):
    monkeypatch.setattr(engine.model, "start", None)
    with (
        pytest.raises(RuntimeError, match="no answer to the first prompt"),
        testclient.TestClient(example.app.Server(engine, warm=5).app()),
    ):
        pytest.fail("it started")
    assert not engine.alive


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_lost_device_leaves_nobody_waiting(client, engine, monkeypatch):
    def lose(*_):
        raise RuntimeError("the device is lost")

    monkeypatch.setattr(engine.model, "step", lose)
    monkeypatch.setattr(engine.model, "release", lose)
    assert generate(client, max_tokens=3)[1][-1] == {"error": "RuntimeError: the device is lost"}
    engine._thread.join(30)
    assert client.get("/health").status_code == 503
    assert generate(client)[0] == 503


def test_a_model_on_the_cpu_is_served_without_a_driver(client, monkeypatch):
    monkeypatch.setattr(runtime, "healthy", lambda: False)
    assert client.get("/health").json() == {"healthy": True}
    assert generate(client, max_tokens=1)[0] == 200
    assert "nojit_healthy 1\n" in client.get("/metrics").text


def test_a_probe_is_told_of_a_broken_context(client, engine, monkeypatch):
    monkeypatch.setattr(engine.model, "device", torch.device("cuda"))
    monkeypatch.setattr(runtime, "healthy", lambda: True)
    assert client.get("/health").json() == {"healthy": True}
    monkeypatch.setattr(runtime, "healthy", lambda: False)
    assert (client.get("/health").status_code, client.get("/health").json()) == (503, {"healthy": False})
    status, (said,) = generate(client)
    assert status == 503
    assert "must be restarted" in said["error"]
    assert "nojit_healthy 0\n" in client.get("/metrics").text


def test_metrics_are_prometheus_text(client):
    generate(client, max_tokens=3)
    text = client.get("/metrics").text
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    values = {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}
    assert values['server_requests_total{how="done"}'] == 1
    assert values["server_tokens_total"] == 3
    assert values["nojit_missed_total"] == runtime.counters().missed
    assert values["nojit_load_seconds_total"] == runtime.counters().load_ns / 1e9
    assert "nojit_launches_total" not in values
    for name in {name.partition("{")[0] for name in values}:
        assert text.count(f"# TYPE {name} ") == text.count(f"# HELP {name} ") == 1


def test_launches_are_counted_if_asked(example, engine):
    launches = example.metrics.Launches()
    launches._add(None)
    try:
        assert "nojit_launches_total 1\n" in example.metrics.exposition(engine, launches)
    finally:
        launches.close()


# -- the client -------------------------------------------------------------------------------------------------------


def figures(example, way, **values):
    same = dict.fromkeys(example.client.Figures.__dataclass_fields__, 10.0) | {"way": way, "files": 0}
    return example.client.Figures(**(same | values))


@pytest.mark.parametrize(
    ("ours", "broken"),
    [
        ({}, []),
        ({"first_ms": 11.01}, ["first token"]),
        ({"ready_ms": 110.5}, ["ready"]),
        ({"files": 1}, ["no file"]),
        ({"first_ms": 10.99, "ready_ms": 109.5}, []),
    ],
)
def test_bars_are_kept_or_not(ours, broken, example):
    judged = example.client.verdicts({"nojit": figures(example, "nojit", **ours), "torch": figures(example, "torch")})
    failed = [bar for bar, kept in judged if not kept]
    assert [bar.startswith(word) for bar, word in zip(failed, broken, strict=True)] == [True] * len(broken)


def test_each_start_counts_as_much_as_the_others(example):
    rounds = [figures(example, "torch", first_ms=float(ms), files=ms) for ms in (9, 1, 4)]
    assert example.client.median("torch", rounds) == figures(example, "torch", first_ms=4.0, files=9)
    assert example.client.percentiles([float(each) for each in range(200, 0, -1)]) == (100.5, 199.0)
    picture = example.client.svg(example.client.chart({"torch": rounds[0]}, "cpu"))
    assert "First token of the first request" in picture


def test_bytecode_is_there_before_anything_is_measured(example, monkeypatch):
    compiled = []
    monkeypatch.setattr(example.client.compileall, "compile_dir", lambda folder, **_: compiled.append(Path(folder)))
    example.client.compile_bytecode()
    assert {(folder / "__init__.py").is_file() or folder == FOLDER for folder in compiled} == {True}
    assert len(compiled) == 3


@pytest.mark.parametrize("ways", ["jit, warm cache", "nojit,torch"])
def test_ways_that_say_nothing_are_refused(ways, example, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["client.py", "--ways", ways])
    with pytest.raises(SystemExit) as refused:
        example.client.main()
    assert refused.value.code == 2
    assert "--ways: " in capsys.readouterr().err


# -- processes --------------------------------------------------------------------------------------------------------


def until(holds: Callable[[], bool], port: int) -> bool:
    """Ask the server until something holds; say whether it ever did."""
    return any(holds() for _ in range(2000) if read(port, "/health"))


def read(port: int, path: str) -> str:
    with closing(HTTPConnection("127.0.0.1", port, timeout=600)) as connection:
        connection.request("GET", path)
        return connection.getresponse().read().decode()


@pytest.mark.slow
def test_a_server_notices_who_goes_away_and_is_measured(example, tmp_path):
    given = argparse.Namespace(device="cpu", small=True, bundles=None, wrap="", warm=4, no_rehearsal=True)
    with example.client.serving("torch", given, tmp_path) as (port, ready_ms):
        with closing(HTTPConnection("127.0.0.1", port, timeout=600)) as gone:
            gone.request("POST", "/generate", json.dumps({"prompt": [1], "max_tokens": 120}))
            answered = gone.getresponse()
            answered.readline()
            answered.close()
        assert until(lambda: 'how="cancelled"} 1' in read(port, "/metrics"), port)
        assert "server_running 0\n" in read(port, "/metrics")
        first_ms, later_ms = example.client.Load(requests=1, prompt=4, tokens=5).ask(port)
    assert 0 < first_ms < ready_ms
    assert len(later_ms) == 4
    assert list(tmp_path.rglob("*")) == []
