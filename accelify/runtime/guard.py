"""No silent hang: ranks that disagree on a collective, or that are gone, end the run with an error that says so.

Before every collective of the runtime, ranks exchange sixteen bytes: how many collectives there were, and a digest of
this one's operation, shapes and types. Where they differ, every rank raises an error with what each was about to do,
and where in the script. A training step of DDP has no such collective, so it costs nothing there; but it is counted,
so that a rank that waits for one in a backward pass can be told from one that is slow: ranks that wait look, once a
second, whether another ended, raised, or waits for something else.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import json
import os
import sys
import sysconfig
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

import torch
import torch.distributed as dist

# A wait is looked into after this many seconds, again and again.
_PATIENCE = 1.0
# For so long a rank must do nothing in a backward pass to count as blocked there.
_BLOCKED = 2.0
# After so long a waiting rank says once whom it waits for.
_TELL = 60.0
# All ranks blocked in backward passes for so long cannot go on.
_STUCK = 20.0
_PACKAGE = str(Path(__file__).parent)
_LIBRARIES = (sysconfig.get_path("stdlib"), os.path.dirname(torch.__file__), "<frozen ")
BACKWARD = "a backward pass"
AVERAGE = "average of gradients"
_ALLOWED = "DistributedDataParallelKwargs(find_unused_parameters=True)"
_UNEVEN = (
    ". Where a batch leaves a part of the model out of the loss, that part has a gradient on some ranks only: "
    f"Accelerator(kwargs_handlers=[{_ALLOWED}]) allows that"
)
_PEER_WORDS = (
    "onnection closed by peer",
    "onnection reset",
    "onnection refused",
    "roken pipe",
    "imed out",
    "NCCL error",
)


class RanksDisagreeError(RuntimeError):
    """Ranks came to different collectives, or not all of them came."""


def script_line() -> str:
    """Where in the script the runtime was called."""
    return _line_of(sys._getframe(1))


def describe(item: Any) -> str:
    """A tensor as type and shape, anything else as it is."""
    if isinstance(item, torch.Tensor):
        return f"{str(item.dtype).removeprefix('torch.')}{list(item.shape)}"
    return str(item)


class Guard:
    """One for each process of a group with more than one.

    Args:
        rank, ranks: of this process, and how many there are.
    """

    def __init__(self, rank: int, ranks: int) -> None:
        self.rank = rank
        self.ranks = ranks
        self.count = 0
        # Since when the process is in a pass that ends only together with the others', its number and its name.
        self.backward_since: tuple[float, int, str] | None = None
        # A group of its own: what ranks exchange here never meets what they exchange elsewhere.
        self.group: Any = dist.new_group(backend="gloo", timeout=timedelta(days=7))
        self.store: Any = None
        self._store_is_lost = False
        with contextlib.suppress(Exception):
            store = dist.distributed_c10d._get_default_store()
            self.store = dist.PrefixStore("accelify", store)  # type: ignore[attr-defined]
        self._mine = torch.empty(2, dtype=torch.int64)
        self._all = [torch.empty(2, dtype=torch.int64) for _ in range(ranks)]
        self._main = threading.get_ident()
        self._hook = sys.excepthook
        sys.excepthook = self._note_exception
        atexit.register(self._note_end)
        threading.Thread(target=self._watch, name="accelify-guard", daemon=True).start()

    # Agreement

    def enter(self, operation: str, *what: Any) -> None:
        """All ranks are about to run the same collective on the same shapes; raises on every rank if not.

        Args:
            operation: its name.
            what: tensors, of which type and shape must agree, and other values that must.

        Raises:
            RanksDisagreeError: they do not agree, or a rank is gone.
        """
        self.count += 1
        told = f"{operation} of {', '.join(map(describe, what))}" if what else operation
        digest = hashlib.blake2b(told.encode(), digest_size=8).digest()
        self._mine[0] = self.count
        self._mine[1] = int.from_bytes(digest, "little", signed=True)
        self._exchange(self._all, self._mine, told)
        if any(not torch.equal(other, self._mine) for other in self._all):
            self._raise_disagreement(told)

    def _raise_disagreement(self, told: str) -> None:
        here = f"{told} at {script_line()}, its collective number {self.count}".encode()
        size = torch.tensor([len(here)])
        sizes = [torch.empty_like(size) for _ in range(self.ranks)]
        self._exchange(sizes, size, told)
        longest = max(int(s) for s in sizes)
        mine = torch.tensor(list(here.ljust(longest)), dtype=torch.uint8)
        texts = [torch.empty_like(mine) for _ in range(self.ranks)]
        self._exchange(texts, mine, told)
        lines = [f"rank {r}: {bytes(t.tolist()).decode().rstrip()}" for r, t in enumerate(texts)]
        raise RanksDisagreeError("ranks disagree on a collective: " + "; ".join(lines))

    def _exchange(self, outputs: list[torch.Tensor], mine: torch.Tensor, told: str) -> None:
        try:
            work = dist.all_gather(outputs, mine, group=self.group, async_op=True)
        except RuntimeError as error:
            raise self.explained(error, told) from error
        begun = time.monotonic()
        said = False
        while True:
            try:
                work.wait(timedelta(seconds=_PATIENCE))
                return
            except RuntimeError as error:
                if "timed out" not in str(error):
                    raise self.explained(error, told) from error
            waited = time.monotonic() - begun
            self._publish("waiting", told)
            self._look_round(told)
            if waited > _TELL and not said:
                said = True
                self._say_for_whom(told)

    def _look_round(self, told: str) -> None:
        """Raise if another rank will not come."""
        for rank, state in self._others():
            if state["what"] in ("ended", "raised"):
                raise RanksDisagreeError(self._sentence(told, rank, state))
            if state["what"] == "blocked":
                uneven = told.startswith(AVERAGE) and state["told"].startswith(BACKWARD)
                raise RanksDisagreeError(
                    f"ranks disagree on a collective: rank {self.rank}: {told} at {script_line()}; rank {rank}: "
                    f"{state['told']}, where it waits for the others" + (_UNEVEN if uneven else "")
                )

    def _say_for_whom(self, told: str) -> None:
        here = {
            rank
            for rank, state in self._others()
            if state["what"] == "waiting" and state["count"] >= self.count
        }
        missing = [r for r in range(self.ranks) if r != self.rank and r not in here]
        print(
            f"accelify: rank {self.rank} has waited {_TELL:.0f} s in {told} at {script_line()} for rank(s) "
            f"{', '.join(map(str, missing))}",
            file=sys.stderr,
            flush=True,
        )

    # Backward passes

    @contextlib.contextmanager
    def backward(self, told: str = BACKWARD) -> Iterator[None]:
        """A backward pass that averages gradients, or another pass that ends only together with the others': counted,
        but nothing is exchanged for it."""
        self.count += 1
        self.backward_since = (time.monotonic(), self.count, told)
        try:
            yield
        except RuntimeError as error:
            if any(word in str(error) for word in _PEER_WORDS):
                raise self.explained(error, told) from error
            raise
        finally:
            self.backward_since = None

    def _watch(self) -> None:
        """Tells the others when this process is blocked in a backward pass."""
        busy = time.process_time()
        idle_since = time.monotonic()
        while True:
            time.sleep(_PATIENCE / 2)
            now, used = time.monotonic(), time.process_time()
            if used - busy > 0.1 * _PATIENCE:
                idle_since = now
            busy = used
            backward = self.backward_since
            if backward is None or now - max(backward[0], idle_since) < _BLOCKED:
                continue
            frame = sys._current_frames().get(self._main)
            told = f"{backward[2]} at {_line_of(frame)}"
            self._publish("blocked", told)
            if (
                now - max(backward[0], idle_since) > _STUCK
                and self._all_blocked()
                and self.backward_since is backward
            ):
                self._give_up(told)

    def _all_blocked(self) -> bool:
        states = list(self._others())
        return len(states) == self.ranks - 1 and all(s["what"] == "blocked" for _, s in states)

    def _give_up(self, told: str) -> None:
        """The main thread waits outside of Python and cannot be woken."""
        why = (
            "their gradients do not match, such as when ranks use different parameters "
            f"({_ALLOWED} allows that)"
            if told.startswith(BACKWARD)
            else "they are in different places of the script"
        )
        print(
            f"accelify: rank {self.rank} and all others wait in {told}: {why}",
            file=sys.stderr,
            flush=True,
        )
        os._exit(70)

    # What became of the others

    def explained(self, error: Exception, told: str) -> RanksDisagreeError:
        """An error of the transport, said in terms of ranks."""
        self._publish("left behind", told)
        deadline = time.monotonic() + 3.0
        gone: list[int] = []
        while time.monotonic() < deadline:
            states = dict(self._others())
            for rank, state in sorted(states.items()):
                if state["what"] in ("raised", "ended"):
                    return RanksDisagreeError(self._sentence(told, rank, state))
            gone = [r for r in range(self.ranks) if r != self.rank and r not in states]
            if self._store_is_lost:
                # It lives in the launcher, or else in rank 0.
                if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
                    return RanksDisagreeError(
                        f"the launcher is gone, which tells ranks of each other, while rank {self.rank} was in {told} "
                        f"at {script_line()}"
                    )
                gone = [0]
                break
            time.sleep(0.1)
        first = str(error).splitlines()[0]
        if not gone:
            return RanksDisagreeError(
                f"rank {self.rank} lost the others in {told} at {script_line()}: {first}"
            )
        who = f"rank {gone[0]} is" if len(gone) == 1 else f"ranks {', '.join(map(str, gone))} are"
        return RanksDisagreeError(
            f"{who} gone (killed, or the machine is down) while rank {self.rank} was in {told} "
            f"at {script_line()}: {first}"
        )

    def _sentence(self, told: str, rank: int, state: dict[str, Any]) -> str:
        return (
            f"rank {rank} {state['what']} {state['told']}, while rank {self.rank} was in {told} at {script_line()}, "
            f"its collective number {self.count}"
        )

    def _others(self) -> Iterator[tuple[int, dict[str, Any]]]:
        for rank in range(self.ranks):
            if rank == self.rank or self.store is None:
                continue
            with self._store_may_be_lost():
                if self.store.check([str(rank)]):
                    state = json.loads(self.store.get(str(rank)))
                    lasting = state["what"] in ("ended", "raised", "left behind")
                    if lasting or time.time() - state["time"] < 3 * _PATIENCE:
                        yield rank, state

    @contextlib.contextmanager
    def _store_may_be_lost(self) -> Iterator[None]:
        """Whatever goes wrong with the store must not hide why it was asked; a lost one is not asked again, which
        would take seconds and pages of torch's own warnings each time."""
        try:
            yield
        except dist.DistNetworkError:
            self.store, self._store_is_lost = None, True
        except Exception:
            pass

    def _publish(self, what: str, told: str) -> None:
        if self.store is not None:
            with self._store_may_be_lost():
                state = {"what": what, "told": told, "count": self.count, "time": time.time()}
                self.store.set(str(self.rank), json.dumps(state))

    def _note_exception(
        self, kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        if not isinstance(error, RanksDisagreeError):
            last = trace
            while last is not None and last.tb_next is not None:
                last = last.tb_next
            place = f" at {_line_of(last.tb_frame)}" if last is not None else ""
            self._publish("raised", f"{kind.__name__}: {str(error)[:300]}{place}")
        self._hook(kind, error, trace)

    def _note_end(self) -> None:
        # One that raised, or that lost another, has told so already.
        with self._store_may_be_lost():
            if self.store is not None and self.store.check([str(self.rank)]):
                state = json.loads(self.store.get(str(self.rank)))
                if state["what"] in ("raised", "left behind"):
                    return
        self._publish("ended", "its script")


def _is_of_the_script(frame: FrameType) -> bool:
    name = frame.f_code.co_filename
    return not (name.startswith((_PACKAGE, *_LIBRARIES)) or f"{os.sep}site-packages{os.sep}" in name)


def _line_of(frame: FrameType | None) -> str:
    """The innermost line of the script, seen from a frame in it or in what it called."""
    outer = frame
    while outer is not None and not _is_of_the_script(outer):
        outer = outer.f_back
    frame = outer or frame
    return (
        "an unknown line"
        if frame is None
        else f"{os.path.relpath(frame.f_code.co_filename)}:{frame.f_lineno}"
    )


_guards: list[Guard] = []


def start(rank: int, ranks: int) -> None:
    """Make this process's guard, once for a process group; every rank must come here."""
    if not _guards:
        _guards.append(Guard(rank, ranks))


def leave() -> None:
    """The process group is about to be destroyed; nothing of it may be held."""
    for guard in _guards:
        guard.group = guard.store = None
    _guards.clear()


def enter(operation: str, *what: Any) -> None:
    """See `Guard.enter`; with one process nothing happens."""
    if _guards:
        _guards[0].enter(operation, *what)


@contextlib.contextmanager
def collective(operation: str, *what: Any) -> Iterator[None]:
    """Around a collective: `enter`, and an error of the transport in it is said in terms of ranks."""
    enter(operation, *what)
    try:
        yield
    except RuntimeError as error:
        told = explained(error, operation)
        if told is error:
            raise
        raise told from error


def backward(told: str = BACKWARD) -> contextlib.AbstractContextManager[None]:
    """See `Guard.backward`."""
    return _guards[0].backward(told) if _guards else contextlib.nullcontext()


def explained(error: RuntimeError, told: str) -> RuntimeError:
    """The error itself, or one that says which rank is gone."""
    if _guards and any(word in str(error) for word in _PEER_WORDS):
        return _guards[0].explained(error, told)
    return error
