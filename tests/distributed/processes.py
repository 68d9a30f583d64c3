"""Runs a function on several gloo processes and brings back what each returned.

Processes are forked from a server that has imported torch once, so starting them is cheap. The rendezvous store lives
in the test's own process, as it lives in the agent's under torchrun: no port can be taken between choosing and using
it, and a killed rank 0 does not take the store along.
"""

import atexit
import contextlib
import faulthandler
import multiprocessing
import os
import pickle
import signal
import sys
import time
import traceback
from dataclasses import dataclass
from multiprocessing.connection import wait

import torch.distributed as dist

_CONTEXT = multiprocessing.get_context("forkserver")
# The first optimizer of a process imports torch._dynamo, which takes seconds.
_CONTEXT.set_forkserver_preload(
    ["torch", "torch._dynamo", "accelify.runtime.accelerator", "tests.distributed.frozen"]
)


@dataclass
class Outcome:
    """What became of one rank."""

    value: object = None
    error: str | None = None
    exit_code: int | None = None

    @property
    def ok(self):
        return self.error is None and self.exit_code == 0


def run_ranks(ranks, function, *args, timeout=120, env=None):
    """`[function(*args) on rank r for r in range(ranks)]`; fails the test if any rank fails."""
    outcomes = try_ranks(ranks, function, *args, timeout=timeout, env=env)
    broken = {r: o.error or f"exit code {o.exit_code}" for r, o in enumerate(outcomes) if not o.ok}
    if broken:
        raise AssertionError("\n".join(f"rank {r}: {text}" for r, text in broken.items()))
    return [o.value for o in outcomes]


def try_ranks(ranks, function, *args, timeout=120, env=None):
    """Like `run_ranks`, but returns every rank's Outcome. A hang still fails the test."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    started = []
    for rank in range(ranks):
        here, there = _CONTEXT.Pipe(duplex=False)
        values = {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(ranks),
            "LOCAL_WORLD_SIZE": str(ranks),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(store.port),
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "TORCHELASTIC_RESTART_COUNT": "0",
            **(env or {}),
        }
        process = _CONTEXT.Process(target=_child, args=(there, values, function, args, timeout))
        process.start()
        there.close()
        started.append((process, here))
    outcomes = [Outcome() for _ in range(ranks)]
    deadline = time.monotonic() + timeout
    waiting = {here: rank for rank, (_, here) in enumerate(started)}
    try:
        while waiting and (left := deadline - time.monotonic()) > 0:
            for here in wait(list(waiting), left):
                rank = waiting.pop(here)
                try:
                    outcomes[rank].value, outcomes[rank].error = pickle.loads(here.recv_bytes())
                except EOFError:
                    outcomes[rank].error = "ended without a result"
        for rank, (process, _) in enumerate(started):
            process.join(max(0.0, deadline - time.monotonic()))
            outcomes[rank].exit_code = process.exitcode
    finally:
        hung = [rank for rank, (process, _) in enumerate(started) if process.exitcode is None]
        for process, here in started:
            process.kill()
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            here.close()
    if hung:
        told = [f"rank {r}: {o.error}" for r, o in enumerate(outcomes) if o.error]
        raise AssertionError("\n".join([f"ranks {hung} still ran after {timeout} s", *told]))
    return outcomes


def _child(pipe, env, function, args, timeout):
    # Where a rank hangs is told before it is killed.
    faulthandler.dump_traceback_later(0.9 * timeout)
    # The kernel ends a rank that outlives its test: where the test's own process was killed, nobody else does. A group
    # of its own lets its loaders' workers be ended with it.
    signal.alarm(int(timeout) + 60)
    os.setpgid(0, 0)
    os.environ.update(env)
    os.environ["OMP_NUM_THREADS"] = "1"
    import torch

    torch.set_num_threads(1)
    value = error = None
    try:
        value = function(*args)
    except BaseException:
        try:
            error = _report()
        except RuntimeError:
            # A loader's handler of SIGCHLD raises wherever its process is at, in here as well, once a worker.
            error = _report()
    pipe.send_bytes(pickle.dumps((value, error)))
    pipe.close()
    # As at the end of a script; multiprocessing would leave it out.
    atexit._run_exitfuncs()
    os._exit(0 if error is None else 1)


def _report():
    """The text of the error that is handled, after the hook for errors that nobody caught has seen it."""
    error = traceback.format_exc()
    sys.excepthook(*sys.exc_info())
    return error


def fresh_accelerator(**kwargs):
    """An Accelerator that knows nothing of those before it, in the process group that is there."""
    from accelify.runtime import Accelerator, AcceleratorState, GradientState

    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()
    return Accelerator(**{"cpu": True, **kwargs})


def complete_checkpoints_late(seconds):
    """Let each checkpoint of this process take so much longer to be complete, as on a slow disk."""
    import time

    from accelify.runtime import checkpoint_folders

    complete = checkpoint_folders.complete

    def late(*args):
        time.sleep(seconds)
        complete(*args)

    checkpoint_folders.complete = late
