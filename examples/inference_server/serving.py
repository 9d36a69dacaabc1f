"""Assembly of a server, from the model to HTTP. Importing it imports torch."""

from __future__ import annotations

import argparse
import gc
import sys
from contextlib import AbstractContextManager

import torch
import uvicorn
from app import Server
from backends import MANIFESTS, begin, make_backend
from engine import Engine
from metrics import Launches
from model import Decoder
from shape import Shape


def serve(given: argparse.Namespace, shape: Shape, begun: AbstractContextManager[object] | None) -> None:
    """Make a model and serve it, once the work in `begun` is done."""
    # freeze existing objects: a garbage collection over torch's modules takes 0.1 s, and a request would wait for it
    gc.freeze()
    device = torch.device(given.device)
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    begun = begun or begin(given.backend, device, given.manifests or MANIFESTS)
    try:
        model = Decoder(shape, make_backend(given.backend), device, dtype)
    except (AssertionError, RuntimeError):
        if device.type == "cpu" or torch.cuda.is_available():
            raise
        sys.exit(
            f"error: expected a GPU that torch can use as {device}; --backend torch --device cpu --small needs none"
        )
    launches = Launches() if given.count_launches else None
    server = Server(Engine(model, given.queue), begun, launches, rehearsed=given.rehearse, warm=given.warm)
    gc.freeze()
    uvicorn.run(server.app(), host=given.host, port=given.port, log_level="warning")
