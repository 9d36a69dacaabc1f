"""HTTP interface of the server: streamed tokens, errors as statuses, health and metrics."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from functools import partial

from engine import BusyError, Engine, Request, Update
from metrics import Launches, exposition
from shape import Shape
from starlette import requests, responses
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

BODY_BYTES = 1 << 20
"""Maximum length of a request body; longer ones are refused unread."""
FIELDS = {"prompt": None, "max_tokens": 16, "temperature": 0.0}
"""Fields of a request, with their defaults."""
HOTTEST = 100.0


class RefusedError(Exception):
    """A refused request, with its HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def ask(prompt: tuple[int, ...], max_tokens: int, temperature: float) -> tuple[Request, asyncio.Queue[Update]]:
    """Return a request, and the queue through which its tokens arrive."""
    updates: asyncio.Queue[Update] = asyncio.Queue()
    tell = partial(asyncio.get_running_loop().call_soon_threadsafe, updates.put_nowait)
    return Request(prompt, max_tokens, temperature, tell), updates


def parse(body: bytes, shape: Shape) -> tuple[tuple[int, ...], int, float]:
    """Parse prompt, number of tokens and temperature.

    Raises:
        RefusedError: 400 if the body is not a JSON object; 422 if a field is invalid.
    """
    try:
        said = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RefusedError(400, f"body: expected JSON, got {error}") from None
    if not isinstance(said, dict):
        raise RefusedError(400, f"body: expected an object, got {type(said).__name__}")
    if unknown := sorted(said.keys() - FIELDS.keys()):
        raise RefusedError(422, f"body: expected {', '.join(FIELDS)}, got {unknown!r:.80}")
    prompt, most, temperature = (said.get(name, default) for name, default in FIELDS.items())
    if not isinstance(prompt, list) or not prompt:
        raise RefusedError(422, f"prompt: expected a list of tokens, got {prompt!r:.40}")
    wrong = next((each for each in prompt if type(each) is not int or not 0 <= each < shape.vocabulary), None)
    if wrong is not None:
        raise RefusedError(422, f"prompt: expected tokens from 0 to {shape.vocabulary - 1}, got {wrong!r:.40}")
    if type(most) is not int or most < 1:
        raise RefusedError(422, f"max_tokens: expected 1 or more, got {most!r:.40}")
    if len(prompt) + most > shape.context:
        got = f"{len(prompt)} and {most}"
        raise RefusedError(422, f"prompt and max_tokens: expected {shape.context} together at most, got {got}")
    if type(temperature) not in {int, float} or not 0 <= temperature <= HOTTEST:
        raise RefusedError(422, f"temperature: expected 0 to {HOTTEST:g}, got {temperature!r:.40}")
    return tuple(prompt), most, float(temperature)


async def stream(updates: asyncio.Queue[Update]) -> AsyncIterator[str]:
    """Yield the answer to a request, line by line."""
    while type(update := await updates.get()) is int:
        yield f'{{"token": {update}}}\n'
    last = {"done": True} if update is None else {"error": f"{type(update).__name__}: {update}"}
    yield f"{json.dumps(last)}\n"


class Stream(responses.StreamingResponse):
    """Response that streams lines, and calls `end` when it ends, also if the client disconnects."""

    def __init__(self, updates: asyncio.Queue[Update], end: Callable[[], None]) -> None:
        super().__init__(stream(updates), media_type="application/x-ndjson")
        self._end = end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send all lines, or as many as the client receives."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._end()


class Server:
    """The HTTP application; its engine runs while the application does.

    Args:
        engine: produces the tokens.
        begun: work in progress that must end before the server is ready.
        launches: counter of launches for the metrics; None for no counting.
        rehearsed: lengths of prompts to rehearse before the first request.
        warm: length of a prompt to answer before the first request; 0 for none.
    """

    def __init__(
        self,
        engine: Engine,
        begun: AbstractContextManager[object] | None = None,
        launches: Launches | None = None,
        *,
        rehearsed: Sequence[int] = (),
        warm: int = 0,
    ) -> None:
        self._engine, self._begun, self._launches = engine, begun or nullcontext(), launches
        self._rehearsed, self._warm = rehearsed, warm

    def app(self) -> Starlette:
        """Return the application."""
        routes = [
            Route("/generate", self.generate, methods=["POST"]),
            Route("/health", self.health),
            Route("/metrics", self.metrics),
        ]
        return Starlette(routes=routes, lifespan=self._serving, exception_handlers={RefusedError: refuse})

    @asynccontextmanager
    async def _serving(self, app: Starlette) -> AsyncIterator[None]:
        with self._begun:
            context = self._engine.model.shape.context
            self._engine.start(length for length in self._rehearsed if length <= context)
            try:
                await self._rehearse(app)
                if self._warm:
                    await self._warm_up(app)
                yield
            finally:
                self._engine.stop()

    async def _rehearse(self, app: Starlette) -> None:
        """Handle one invalid request and one empty stream, so that the first real request runs warm code."""
        await _answer(app, b"{}")
        updates: asyncio.Queue[Update] = asyncio.Queue()
        for update in (0, 0, None):
            updates.put_nowait(update)
        await _answer(Stream(updates, lambda: None), b"")

    async def _warm_up(self, app: Starlette) -> None:
        """Answer one request without the network, so that the first real request runs warm code."""
        said = await _answer(app, json.dumps({"prompt": [0] * self._warm, "max_tokens": 2}).encode())
        if b'"done"' not in said:
            raise RuntimeError(f"no answer to the first prompt: {said.decode()}")

    @property
    def healthy(self) -> bool:
        """Return whether the server can answer requests."""
        return self._engine.device_usable and self._engine.alive

    async def generate(self, asked: requests.Request) -> responses.Response:
        """Stream tokens.

        Raises:
            RefusedError: as for `read` and `parse`; 503 if the queue is full or the device is lost.
        """
        if not self.healthy:
            raise RefusedError(503, "the device cannot be used any more: this process must be restarted")
        request, updates = ask(*parse(await read(asked), self._engine.model.shape))
        try:
            self._engine.submit(request)
        except BusyError as error:
            raise RefusedError(503, str(error)) from None
        return Stream(updates, partial(self._engine.cancel, request))

    async def health(self, _: requests.Request) -> responses.Response:
        """Answer a health probe."""
        healthy = self.healthy
        return responses.JSONResponse({"healthy": healthy}, 200 if healthy else 503)

    async def metrics(self, _: requests.Request) -> responses.Response:
        """Answer Prometheus."""
        text = exposition(self._engine, self._launches)
        return responses.PlainTextResponse(text, media_type="text/plain; version=0.0.4")


async def _answer(app: ASGIApp, body: bytes) -> bytes:
    """Post to /generate without a network; return the body of the answer."""
    asked: list[Message] = [{"type": "http.request", "body": body}]
    answered: list[Message] = []

    async def receive() -> Message:
        # the listener of a stream waits for the client to disconnect
        return asked.pop() if asked else await asyncio.Future()

    async def send(message: Message) -> None:
        answered.append(message)

    scope = {"type": "http", "method": "POST", "path": "/generate", "query_string": b"", "headers": []}
    await app(scope, receive, send)
    return b"".join(message.get("body", b"") for message in answered)


async def refuse(_: requests.Request, error: Exception) -> responses.Response:
    """Return the error response of a refused request."""
    status = error.status if isinstance(error, RefusedError) else 500
    return responses.JSONResponse({"error": str(error)}, status, {"retry-after": "1"} if status == 503 else None)


async def read(asked: requests.Request) -> bytes:
    """Read a body up to the maximum length.

    Raises:
        RefusedError: 413 if the body is longer.
    """
    body = b""
    async for chunk in asked.stream():
        body += chunk
        if len(body) > BODY_BYTES:
            raise RefusedError(413, f"body: expected at most {BODY_BYTES} bytes, got more")
    return body
