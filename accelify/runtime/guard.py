"""No silent hang: ranks that disagree on a collective, or that are gone, end the run with an error that explains it.

Before every collective of the runtime, ranks exchange a few bytes: how many collectives there were, and a digest of
this one's operation, shapes and types. Where they differ, every rank raises an error with what each was about to do,
and where in the script. A tensor that is gathered travels in the same message if it is small or was expected. A
training step of DDP has no such collective, so it costs nothing there; but it is counted.

A rank that waits looks now and then what became of the others, and raises where it is proved that one will not come:
it ended or raised, or it is in a pass that is averaged over ranks and that this rank has not reached. That another
rank takes long proves nothing. Such a rank is waited for as long as the process group's timeout, and no longer.

The environment variable `ACCELIFY_GUARD` is "on" (the default), "warn" (print what disagrees, and go on) or "off" (no
exchange and no process group for it: a disagreement then hangs until the process group's timeout, as in plain torch).
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from types import TracebackType
from typing import Any, NoReturn

import torch
import torch.distributed as dist

from .messages import Rooms, describe, digest, say, signature_within
from .script_lines import line_of, script_line

# A wait is looked into after this many seconds, again and again; with many ranks less often, for the store's sake.
_PATIENCE = 1.0
_RANKS_A_SECOND = 100
# After this time a waiting rank prints once which ranks it waits for.
_TELL = 60.0
_A_MOMENT = timedelta(seconds=_PATIENCE)
MODES = ("on", "warn", "off")
BACKWARD = "a backward pass"
AVERAGE = "average of gradients"
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


# Hugging Face Accelerate's name for it.
DistributedOperationException = RanksDisagreeError


class Guard:
    """One for each process of a group with more than one.

    Args:
        rank, ranks: of this process, and how many there are.
        timeout: for so long a rank that does not come is waited for.
        warns: print disagreements in place of raising them.
    """

    def __init__(self, rank: int, ranks: int, timeout: timedelta, warns: bool = False) -> None:
        self.rank = rank
        self.ranks = ranks
        self.timeout = timeout
        self.warns = warns
        # Collectives so far, and passes that are averaged over ranks since the last of them.
        self.count = 0
        self.passes = 0
        # Since when the process is in such a pass, its number, its name and the models whose reducers it uses.
        self.running: tuple[float, int, str, tuple[str, ...]] | None = None
        # A group for this alone: what ranks exchange here never meets what they exchange elsewhere.
        self.group: Any = dist.new_group(backend="gloo", timeout=timeout)
        self._store: Any = None
        self._store_is_lost = False
        self._launcher = os.getppid() if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True" else None
        with contextlib.suppress(Exception):
            store = dist.distributed_c10d._get_default_store()
            self._store = dist.PrefixStore("accelify", store)  # type: ignore[attr-defined]
        # With warnings alone ranks may go on with tensors of different sizes.
        self._rooms = Rooms(ranks, with_room=not warns)
        self.message = self._rooms.expected()
        self._interval = _PATIENCE * max(1.0, ranks / _RANKS_A_SECOND)
        # The state in which a rank was seen last.
        self._seen: dict[int, dict[str, Any]] = {}
        self._ticks = 0
        self._main = threading.get_ident()
        self._hook = sys.excepthook
        sys.excepthook = self._note_exception
        atexit.register(self._note_end)
        self._left = threading.Event()
        threading.Thread(target=self._watch, name="accelify-guard", daemon=True).start()

    def leave(self) -> None:
        """Hold the process group no longer."""
        self._left.set()
        self.group = self._store = None

    @property
    def store(self) -> Any:
        """Where ranks leave their states; None once it is lost: torch fills pages where a lost one is asked."""
        if self._launcher not in (None, os.getppid()):
            self._store, self._store_is_lost = None, True
        return self._store

    # Agreement

    def enter(self, operation: str, *what: Any, gathered: int = 0) -> None:
        """All ranks are about to run the same collective on the same shapes; raises on every rank if not.

        Args:
            operation: its name.
            what: tensors, of which type and shape must agree, and other values that must.
            gathered: bytes of a tensor that is gathered in it and could travel in the message the next time.

        Raises:
            RanksDisagreeError: they do not agree, or a rank is gone.
        """
        stated = f"{operation} of {', '.join(map(describe, what))}" if what else operation
        self._agree(stated, digest(stated), gathered)

    def _agree(self, stated: str, digest: int, gathered: int) -> None:
        self.count += 1
        self.message.begin(self.count, digest)
        self._exchange(self.message.all, self.message.mine, stated)
        self.passes = 0
        if not self.message.agrees():
            self._raise_disagreement(stated)
        self.message = self._rooms.after(stated, gathered)

    def gather(self, operation: str, tensor: torch.Tensor) -> torch.Tensor:
        """`enter`, and every rank's tensor, in a first dimension of all ranks.

        Args:
            operation: its name.
            tensor: one that the message `takes`.
        """
        message = self.message
        message.put(tensor)
        self._agree(*signature_within(operation, tensor.dtype, tensor.shape), tensor.nbytes)
        return message.parts(tensor)

    def _raise_disagreement(self, stated: str) -> None:
        here = f"{stated} at {script_line()}, its collective number {self.count}".encode()
        size = torch.tensor([len(here)])
        sizes = size.repeat(self.ranks)
        self._exchange(sizes, size, stated)
        longest = int(sizes.max())
        mine = torch.tensor(list(here.ljust(longest)), dtype=torch.uint8)
        texts = mine.repeat(self.ranks)
        self._exchange(texts, mine, stated)
        lines = [
            f"rank {r}: {bytes(t.tolist()).decode().rstrip()}"
            for r, t in enumerate(texts.view(self.ranks, -1))
        ]
        self._raise("ranks disagree on a collective: " + "; ".join(lines))

    def _raise(self, sentence: str) -> None:
        if not self.warns:
            raise RanksDisagreeError(sentence)
        say(sentence)

    def _exchange(self, outputs: torch.Tensor, mine: torch.Tensor, stated: str) -> None:
        try:
            # What all_gather_into_tensor calls, which takes longer than what is sent.
            work = self.group._allgather_base(outputs, mine)
        except RuntimeError as error:
            self._raise_cut_off(error, stated)
        begun = looked = time.monotonic()
        reported = False
        while True:
            try:
                work.wait(_A_MOMENT)
                return
            except RuntimeError as error:
                if "Timed out waiting" in str(error):
                    # Gloo itself has waited for the group's timeout: the other is late, which is not to be gone.
                    raise RanksDisagreeError(self._too_long(stated)) from error
                if "timed out" not in str(error):
                    self._raise_cut_off(error, stated)
            now = time.monotonic()
            if now - begun > self.timeout.total_seconds():
                raise RanksDisagreeError(self._too_long(stated))
            if now - looked < self._interval and self.ranks > _RANKS_A_SECOND:
                continue
            looked = now
            self._publish("waiting", stated)
            self._look_round(stated)
            if now - begun > _TELL and not reported:
                reported = True
                self._say_for_whom(stated)

    def _raise_cut_off(self, error: RuntimeError, stated: str) -> NoReturn:
        # The transport is no Python; what has a frame below is a signal's handler, as of a loader whose worker died.
        if error.__traceback__ is not None and error.__traceback__.tb_next is not None:
            raise error
        raise self.explained(error, stated) from error

    def _look_round(self, stated: str) -> None:
        """Raise where it is proved that another rank will not come."""
        for rank, state in self._others():
            before, self._seen[rank] = self._seen.get(rank), state
            if state["what"] in ("ended", "raised"):
                raise RanksDisagreeError(self._sentence(stated, rank, state))
            if state["what"] != "running" or state["count"] != self.count - 1:
                continue
            # Seen twice in one pass, it is still there.
            if before is None or {**before, "tick": 0} != {**state, "tick": 0} or before == state:
                continue
            if state["passes"] > self.passes or self._is_awaited(stated, state):
                self._raise(
                    f"ranks disagree on a collective: rank {self.rank}: {stated} at {script_line()}; rank {rank}: "
                    f"{state['stated']}, which needs this rank, too"
                )

    def _is_awaited(self, stated: str, state: dict[str, Any]) -> bool:
        """Whether another rank averages in its reducer what this one averages outside of it."""
        names = state["reducers"] if state["passes"] == self.passes else ()
        return any(stated.startswith(f"{AVERAGE} of {name}") for name in names)

    def _too_long(self, stated: str) -> str:
        return (
            f"rank {self.rank} has waited in {stated} at {script_line()} for {self._missing()} as long as the process "
            f"group's timeout of {self.timeout.total_seconds():.0f} s; where that can take longer, "
            "InitProcessGroupKwargs(timeout=...) sets another"
        )

    def _missing(self) -> str:
        here = {r for r, s in self._others() if s["what"] == "waiting" and s["count"] >= self.count}
        missing = [r for r in range(self.ranks) if r != self.rank and r not in here]
        shown = ", ".join(map(str, missing[:10])) + (", ..." if len(missing) > 10 else "")
        return f"rank(s) {shown}"

    def _say_for_whom(self, stated: str) -> None:
        waits = f"rank {self.rank} has waited {_TELL:.0f} s in {stated} at {script_line()}"
        say(f"{waits} for {self._missing()}")

    # Passes that are averaged over ranks

    def backward(self, stated: str = BACKWARD, reducers: tuple[str, ...] | None = None) -> _Pass:
        """A pass that ends only together with the others', such as a backward that averages gradients: counted, but
        nothing is exchanged for it.

        Args:
            stated: what an error calls it.
            reducers: names of the models whose gradients are averaged in it; empty: it needs no other rank.
        """
        return _Pass(self, stated, reducers)

    def _watch(self) -> None:
        """Let the others see when this process is long in such a pass, and what it is."""
        stated_of: Any = None
        while not self._left.wait(self._interval / 2):
            running = self.running
            if running is None:
                continue
            lasts = time.monotonic() - running[0]
            if lasts < _PATIENCE:
                continue
            stated = f"{running[2]} at {line_of(sys._current_frames().get(self._main))}"
            if self.running is not running:
                continue
            self._publish("running", stated, running[1], running[3])
            if lasts > _TELL and stated_of is None:
                stated_of = running
                self._say_where_all_are(stated)

    def _say_where_all_are(self, stated: str) -> None:
        """Once: a pass may last long in a healthy job, and the state of the others decides whether it is one."""
        others = [f"rank {r}: {s['what']} in {s['stated']}" for r, s in self._others()][:10]
        heard = f" (last heard of {'; '.join(others)})" if others else ""
        say(f"rank {self.rank} has been for {_TELL:.0f} s in {stated}; it goes on waiting{heard}")

    # What became of the others

    def explained(self, error: Exception, stated: str) -> RanksDisagreeError:
        """An error of the transport, described in terms of ranks."""
        self._publish("cut off", stated)
        deadline = time.monotonic() + 3.0
        gone: list[int] = []
        first_seen: dict[int, dict[str, Any]] | None = None
        while time.monotonic() < deadline:
            states = dict(self._others())
            first_seen = states if first_seen is None else first_seen
            for rank, state in sorted(states.items()):
                if state["what"] in ("raised", "ended"):
                    return RanksDisagreeError(self._sentence(stated, rank, state))
            # One that reports again, or that has lost others as well, is alive.
            alive = {r for r, s in states.items() if s["what"] == "cut off" or s != first_seen.get(r)}
            gone = [r for r in range(self.ranks) if r != self.rank and r not in alive]
            if self._store_is_lost:
                # It lives in the launcher, or else in rank 0.
                if self._launcher is not None:
                    return RanksDisagreeError(
                        f"the launcher is gone, which tells ranks of each other, while rank {self.rank} was in "
                        f"{stated} at {script_line()}"
                    )
                gone = [0]
                break
            time.sleep(0.1)
        first = str(error).splitlines()[0]
        if not gone:
            return RanksDisagreeError(
                f"rank {self.rank} lost the others in {stated} at {script_line()}: {first}"
            )
        who = f"rank {gone[0]} is" if len(gone) == 1 else f"ranks {', '.join(map(str, gone))} are"
        return RanksDisagreeError(
            f"{who} gone (killed, or the machine is down) while rank {self.rank} was in {stated} "
            f"at {script_line()}: {first}"
        )

    def _sentence(self, stated: str, rank: int, state: dict[str, Any]) -> str:
        return (
            f"rank {rank} {state['what']} {state['stated']}, while rank {self.rank} was in {stated} "
            f"at {script_line()}, its collective number {self.count}"
        )

    def _others(self) -> Iterator[tuple[int, dict[str, Any]]]:
        for rank in range(self.ranks):
            if rank == self.rank or self.store is None:
                continue
            with self._store_may_be_lost():
                if self.store.check([str(rank)]):
                    yield rank, json.loads(self.store.get(str(rank)))

    @contextlib.contextmanager
    def _store_may_be_lost(self) -> Iterator[None]:
        """Whatever goes wrong with the store must not hide the cause of the read; a lost one is not read again, which
        would take seconds and pages of torch's warnings each time."""
        try:
            yield
        except dist.DistNetworkError:
            self._store, self._store_is_lost = None, True
        except Exception:
            pass

    def _publish(self, what: str, stated: str, passes: int = 0, reducers: tuple[str, ...] = ()) -> None:
        if (store := self.store) is not None:
            with self._store_may_be_lost():
                # No clock: those of machines differ, and jump.
                self._ticks += 1
                state = {"what": what, "stated": stated, "count": self.count, "tick": self._ticks}
                store.set(str(self.rank), json.dumps({**state, "passes": passes, "reducers": list(reducers)}))

    def _note_exception(
        self, kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        if not isinstance(error, RanksDisagreeError):
            last = trace
            while last is not None and last.tb_next is not None:
                last = last.tb_next
            place = f" at {line_of(last.tb_frame)}" if last is not None else ""
            self._publish("raised", f"{kind.__name__}: {str(error)[:300]}{place}")
        self._hook(kind, error, trace)

    def _note_end(self) -> None:
        # One that raised, or that lost another, has reported so already.
        with self._store_may_be_lost():
            if self.store is not None and self.store.check([str(self.rank)]):
                if json.loads(self.store.get(str(self.rank)))["what"] in ("raised", "cut off"):
                    return
        self._publish("ended", "its script")


class _Pass:
    """What `Guard.backward` returns. One of contextlib's would take longer than all else that is done for a step."""

    __slots__ = ("guard", "reducers", "stated")

    def __init__(self, guard: Guard, stated: str, reducers: tuple[str, ...] | None) -> None:
        self.guard, self.stated, self.reducers = guard, stated, reducers

    def __enter__(self) -> None:
        guard, reducers = self.guard, self.reducers
        guard.passes += reducers is None or len(reducers) > 0
        guard.running = (time.monotonic(), guard.passes, self.stated, reducers or ())

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self.guard.running = None
        if isinstance(error, RuntimeError) and any(word in str(error) for word in _PEER_WORDS):
            raise self.guard.explained(error, self.stated) from error


_guards: list[Guard] = []


def mode() -> str:
    """The value of `ACCELIFY_GUARD`.

    Raises:
        ValueError: it is none of `MODES`.
    """
    found = os.environ.get("ACCELIFY_GUARD", "").strip().lower() or "on"
    if found not in MODES:
        raise ValueError(f"ACCELIFY_GUARD must be one of {', '.join(MODES)}, not {found!r}")
    return found


def start(rank: int, ranks: int, timeout: timedelta | None = None) -> None:
    """Make this process's guard, once for a process group; every rank must come here.

    Args:
        rank, ranks: of this process, and how many there are.
        timeout: of the process group; default: torch's.
    """
    asked = mode()
    if _guards or asked == "off":
        return
    if not _all_have_gloo(rank, ranks):
        if rank == 0:
            say(
                "ranks that disagree are not found out here, as gloo has no network interface on every host "
                "(GLOO_SOCKET_IFNAME names one); ACCELIFY_GUARD=off leaves this message out"
            )
        return
    _guards.append(Guard(rank, ranks, timeout or dist.default_pg_timeout, asked == "warn"))


def _all_have_gloo(rank: int, ranks: int) -> bool:
    """Whether the guard's group can be made; a group that is made on some hosts only would hang on those."""
    if dist.get_backend() == "gloo":
        return True
    mine = "0"
    with contextlib.suppress(Exception):
        dist.ProcessGroupGloo.create_default_device()
        mine = "1"
    store = dist.PrefixStore("accelify-gloo", dist.distributed_c10d._get_default_store())  # type: ignore[attr-defined]
    if mine == "0":
        store.set("missing", mine)
    # Every rank has looked when the count is full.
    if store.add("ranks", 1) == ranks:
        store.set("all", "1")
    store.wait(["all"])
    return not store.check(["missing"])


def leave() -> None:
    """The process group is about to be destroyed; no reference to it may stay."""
    while _guards:
        _guards.pop().leave()


def is_on() -> bool:
    """Whether ranks exchange what they are about to do."""
    return bool(_guards)


def rejoin() -> None:
    """Ranks that had different numbers of passes have come together again."""
    for guard in _guards:
        guard.passes = 0


def enter(operation: str, *what: Any, gathered: int = 0) -> None:
    """See `Guard.enter`; with one process nothing happens."""
    if _guards:
        _guards[0].enter(operation, *what, gathered=gathered)


def gather_within(operation: str, tensor: torch.Tensor) -> torch.Tensor | None:
    """Every rank's tensor in one, where it fits into the message; None: it needs a separate collective."""
    if not _guards or not _guards[0].message.takes(tensor):
        return None
    return _guards[0].gather(operation, tensor)


@contextlib.contextmanager
def collective(operation: str, *what: Any, gathered: int = 0) -> Iterator[None]:
    """Around a collective: `enter`, and an error of the transport in it is described in terms of ranks."""
    enter(operation, *what, gathered=gathered)
    try:
        yield
    except RuntimeError as error:
        if (stated := explained(error, operation)) is error:
            raise
        raise stated from error


def backward(
    stated: str = BACKWARD, reducers: tuple[str, ...] | None = None
) -> contextlib.AbstractContextManager[None]:
    """See `Guard.backward`."""
    return _guards[0].backward(stated, reducers) if _guards else contextlib.nullcontext()


def explained(error: RuntimeError, stated: str) -> RuntimeError:
    """The error itself, or one that names the rank that is gone."""
    if _guards and any(word in str(error) for word in _PEER_WORDS):
        return _guards[0].explained(error, stated)
    return error
