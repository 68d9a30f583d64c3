"""Tests that are marked `gpu` are skipped on a machine without a CUDA device; no process outlives the tests."""

import multiprocessing.forkserver
import multiprocessing.resource_tracker
import os
import signal
import sys
import time
import uuid
from pathlib import Path

import pytest

# Every process that a test starts has it in its environment (tests take out what begins with ACCELIFY_).
_MARK = "PYTEST_SESSION_OF_ACCELIFY"


def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        os.environ[_MARK] = uuid.uuid4().hex


def pytest_runtest_setup(item):
    if item.get_closest_marker("gpu") is None:
        return
    import torch

    if not torch.cuda.is_available():
        pytest.skip("there is no CUDA device here")


@pytest.fixture(scope="session")
def nursery():
    """The processes of verifications."""
    from tests.verify.shared_nursery import SharedNursery

    shared = SharedNursery(threads=1)
    yield shared
    shared.close()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session, exitstatus):
    """A process that is left fails the session, by name; it is ended."""
    if hasattr(session.config, "workerinput") or not sys.platform.startswith("linux"):
        return
    # What ends with this process, ended now.
    multiprocessing.forkserver._forkserver._stop()
    multiprocessing.resource_tracker._resource_tracker._stop()
    deadline = time.monotonic() + 20
    while (left := _of_this_session(os.environ[_MARK])) and time.monotonic() < deadline:
        time.sleep(0.2)
    for pid, words in left.items():
        print(f"\nleft behind by a test, and ended: {pid} {words}", file=sys.stderr)
        os.kill(pid, signal.SIGKILL)
    if left:
        session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED


def _of_this_session(mark):
    found = {}
    for entry in Path("/proc").iterdir():
        try:
            if not entry.name.isdecimal() or int(entry.name) == os.getpid():
                continue
            if f"{_MARK}={mark}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:200]
        except OSError:
            continue
    return found
