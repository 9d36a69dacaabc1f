"""A program that launches kernels: alone, from threads, or with children, as its arguments say."""

import multiprocessing
import os
import signal
import sys
import threading

import triton
import triton.language as tl

from tests.runtime.recording.programs.gpu import Gpu, Tensor, install


@triton.jit
def scale(x, y, n, BLOCK: tl.constexpr):
    tl.store(y, tl.load(x))


def launch(block=64, times=1):
    for _ in range(times):
        scale[(block,)](Tensor(), Tensor(), 100, BLOCK=block)


def child(block):
    install(Gpu())
    launch(block, 5)


def with_threads():
    def work():
        for block in (16, 32, 64):
            launch(block, 50)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()


def with_children(method):
    context = multiprocessing.get_context(method)
    launch(64, 3)
    children = [context.Process(target=child, args=(block,)) for block in (64, 128)]
    for each in children:
        each.start()
    for each in children:
        each.join()
        assert each.exitcode == 0


def with_fork():
    launch(64, 3)
    if not os.fork():
        launch(64, 7)
        sys.exit(0)
    os.wait()


def main():
    install(Gpu())
    what = sys.argv[1] if len(sys.argv) > 1 else ""
    if what in {"fork", "spawn", "forkserver"}:
        with_children(what)
    elif what == "os.fork":
        with_fork()
    elif what == "threads":
        with_threads()
    elif what == "kill":
        launch(64, 9)
        os.kill(os.getpid(), signal.SIGKILL)
    elif what == "exit":
        launch(64, 3)
        sys.exit(7)
    elif what == "signal":
        launch(64, 3)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        signal.pause()
    else:
        launch(64, 3)
        sys.stdout.write("done\n")


if __name__ == "__main__":
    main()
