"""Happens-before between ranks: which collectives a rank took part in, between what it did to the outside.

An all-reduce, an all-gather or a barrier orders what any rank did before it before what any rank does after it; a
broadcast only what its source did; a gather only for its destination; a message only between two. An asynchronous one
orders from the moment on which it was waited for. What C++ calls by itself (the all-reduce of gradients in a backward
pass of DDP) is seen in the sequence number of the process group.

Events "sync" are written only where an effect follows: each holds all that happened since the effect before.
`compare/order.py` reads them. An event "group" says which ranks a group has.
"""

from __future__ import annotations

import functools
import inspect
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

from accelify.verify.observe.context import Context

ALL = (
    "all_reduce", "all_reduce_coalesced", "all_gather", "all_gather_into_tensor", "all_gather_object",
    "all_gather_coalesced", "_all_gather_base", "reduce_scatter", "reduce_scatter_tensor", "_reduce_scatter_base",
    "all_gather_single", "reduce_scatter_single", "all_to_all", "all_to_all_single", "barrier", "monitored_barrier",
)  # fmt: skip
FROM_ONE = {
    "broadcast": "src",
    "broadcast_object_list": "src",
    "scatter": "src",
    "scatter_object_list": "src",
}
TO_ONE = {"reduce": "dst", "gather": "dst", "gather_object": "dst"}
SEND = {"send": "dst", "isend": "dst", "send_object_list": "dst"}
RECEIVE = {"recv": "src", "irecv": "src", "recv_object_list": "src"}
SETUP = ("init_process_group", "new_group")
"""Every rank of the world takes part in these, and none returns before all have come."""

Operation = tuple[str, str, int, int]
"""How it orders ("all", "from", "to", "send", "receive"), the group, the number there, and the root or other rank."""


class Bundle:
    """What a rank took part in since the effect before: ordering begins (issued) and is complete (waited)."""

    def __init__(self) -> None:
        self.spans: dict[str, list[list[int]]] = {}
        self.whole: list[Operation] = []
        self.issued: list[Operation] = []
        self.waited: list[Operation] = []

    def add_all(self, group: str, first: int, last: int) -> None:
        spans = self.spans.setdefault(group, [])
        if spans and spans[-1][1] + 1 == first:
            spans[-1][1] = last
        else:
            spans.append([first, last])

    def add(self, operation: Operation) -> None:
        if operation[0] == "all":
            self.add_all(operation[1], operation[2], operation[2])
        else:
            self.whole.append(operation)

    def wait(self, operation: Operation) -> None:
        if operation in self.issued:
            self.issued.remove(operation)
            self.add(operation)
        else:
            self.waited.append(operation)

    def __bool__(self) -> bool:
        return bool(self.spans or self.whole or self.issued or self.waited)

    def to_json(self) -> dict[str, Any]:
        parts = {"all": self.spans, "whole": self.whole, "issued": self.issued, "waited": self.waited}
        return {name: part for name, part in parts.items() if part}


class Ordering:
    """Counts the collectives of one process. `epoch` is the number of "sync" events so far."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.epoch = 0
        self._bundle = Bundle()
        self._lock = threading.RLock()
        self._inside = threading.local()
        self._groups: dict[str, Any] = {}
        # Sequence number up to which a group's collectives are known, and how many numbers went to messages, which
        # other ranks of the group do not count.
        self._known: dict[str, int] = {}
        self._messages: dict[str, int] = {}
        self._pairs: dict[tuple[str, int, int], int] = {}
        self._pending: dict[int, tuple[Any, Operation]] = {}
        self._generation = 0
        self._setups = 0

    def install(self) -> None:
        """Count from now on. Nothing to count where a run has one process."""
        import torch.distributed as dist

        if self.context.world < 2 or not dist.is_available():
            return
        names: dict[str, Callable[[Any, str], Any]] = dict.fromkeys(ALL, self._watched)
        names |= {name: self._watched for table in (FROM_ONE, TO_ONE, SEND, RECEIVE) for name in table}
        names |= dict.fromkeys(SETUP, self._watched_setup)
        names["_broadcast_coalesced"] = self._watched_coalesced
        for name, wrap in names.items():
            function = getattr(dist, name, None)
            if function is None:
                continue
            wrapped = wrap(function, name)
            for module in (dist, dist.distributed_c10d):
                if getattr(module, name, None) is function:
                    setattr(module, name, wrapped)
        work: Any = dist.Work
        work.wait = self._watched_wait(work.wait)
        work.get_future = self._watched_future(work.get_future)

    def flush(self) -> int:
        """Write what there was since the last effect; returns the epoch that the next effect belongs to."""
        with self._lock:
            for name in list(self._groups):
                self._catch_up(name)
            if self._bundle:
                self.epoch += 1
                self.context.emit("sync", epoch=self.epoch, **self._bundle.to_json())
                self._bundle = Bundle()
            return self.epoch

    def moved(self) -> bool:
        """Whether there was anything since the last effect."""
        with self._lock:
            return bool(self._bundle) or any(
                self._sequence(name) > self._known[name] for name in self._groups
            )

    # Groups -----------------------------------------------------------------------------------------------------

    def _name(self, group: Any) -> str | None:
        """The group's name, the same on all of its ranks; None for one that this process is not in."""
        dist = sys.modules["torch.distributed"]
        try:
            group = group if group is not None else dist.group.WORLD
            if group is None or dist.get_rank(group) < 0:
                return None
            name = f"{self._generation}:{group.group_name}"
        except Exception:
            return None
        if name not in self._groups:
            self._groups[name] = weakref.ref(group)
            self._known.setdefault(name, 0)
            self.context.emit("group", name=name, ranks=list(dist.get_process_group_ranks(group)))
        return name

    def _sequence(self, name: str) -> int:
        """How many collectives the group has had, as all of its ranks count them."""
        group = self._groups[name]()
        if group is None:
            return self._known[name]
        try:
            number = int(group._get_sequence_number_for_group())
        except Exception:
            # A backend without such numbers: what is called from Python is counted by `_watched` alone.
            return self._known[name]
        return number - self._messages.get(name, 0)

    def _catch_up(self, name: str) -> None:
        """Collectives that were not called from Python are those of gradients, in which all take part."""
        now = self._sequence(name)
        if now > self._known[name]:
            self._bundle.add_all(name, self._known[name] + 1, now)
            self._known[name] = now

    # Calls ------------------------------------------------------------------------------------------------------

    def _watched(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        parameters = list(inspect.signature(function).parameters)

        @functools.wraps(function)
        def watched(*args: Any, **kwargs: Any) -> Any:
            if getattr(self._inside, "depth", 0):
                return function(*args, **kwargs)
            given = dict(zip(parameters, args, strict=False)) | kwargs
            group = self._name(given.get("group"))
            if group is None:
                return function(*args, **kwargs)
            return self._call(function, name, group, given, args, kwargs)

        return watched

    def _call(
        self,
        function: Callable[..., Any],
        name: str,
        group: str,
        given: dict[str, Any],
        args: Any,
        kwargs: Any,
    ) -> Any:
        with self._lock:
            self._catch_up(group)
        before = self._sequence(group)
        # A receiver that does not name the sender gets it from the call.
        operation = self._message(name, group, given)
        self._inside.depth = 1
        try:
            result = function(*args, **kwargs)
        finally:
            self._inside.depth = 0
        with self._lock:
            after = self._sequence(group)
            if operation is not None:
                self._messages[group] = self._messages.get(group, 0) + after - before
            else:
                self._known[group] = max(after, before + 1)
                kind, root = self._direction(name, given)
                operation = (kind, group, self._known[group], root)
            work = getattr(result, "wait", None)
            if work is not None and getattr(result, "is_completed", None) is not None:
                self._bundle.issued.append(operation)
                self._pending[id(result)] = (result, operation)
            else:
                self._bundle.add(operation)
        return result

    def _direction(self, name: str, given: dict[str, Any]) -> tuple[str, int]:
        for kind, table in (("from", FROM_ONE), ("to", TO_ONE)):
            if name in table:
                return kind, self._other_rank(given, table[name])
        return "all", -1

    def _message(self, name: str, group: str, given: dict[str, Any]) -> Operation | None:
        for kind, table in (("send", SEND), ("receive", RECEIVE)):
            if name in table:
                other_rank = self._other_rank(given, table[name])
                pair = (f"{group}/{given.get('tag', 0)}/{kind}", other_rank, 0)
                self._pairs[pair] = number = self._pairs.get(pair, 0) + 1
                return kind, f"{group}/{given.get('tag', 0)}", number, other_rank
        return None

    @staticmethod
    def _other_rank(given: dict[str, Any], name: str) -> int:
        """The other side's rank in the world."""
        dist = sys.modules["torch.distributed"]
        inner = given.get(f"group_{name}")
        if inner is not None:
            return int(dist.get_global_rank(given.get("group") or dist.group.WORLD, inner))
        other_rank = given.get(name)
        return int(other_rank) if other_rank is not None else 0

    def _watched_coalesced(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        """DDP's broadcast of parameters and buffers; positions: group, tensors, size of a bucket, source."""

        @functools.wraps(function)
        def watched(*args: Any, **kwargs: Any) -> Any:
            group = self._name(kwargs.get("process_group", args[0] if args else None))
            if group is None:
                return function(*args, **kwargs)
            with self._lock:
                self._catch_up(group)
            before = self._sequence(group)
            result = function(*args, **kwargs)
            with self._lock:
                self._known[group] = self._sequence(group)
                for number in range(before + 1, self._known[group] + 1):
                    self._bundle.add(("from", group, number, int(kwargs.get("src", (*args, 0, 0, 0, 0)[3]))))
            return result

        return watched

    def _watched_setup(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        @functools.wraps(function)
        def watched(*args: Any, **kwargs: Any) -> Any:
            if getattr(self._inside, "depth", 0):
                return function(*args, **kwargs)
            self._inside.depth = 1
            try:
                result = function(*args, **kwargs)
            finally:
                self._inside.depth = 0
            with self._lock:
                if name == "init_process_group":
                    self._generation += 1
                self._setups += 1
                self._bundle.add_all("setup", self._setups, self._setups)
                self._name(result if name == "new_group" else None)
            return result

        return watched

    def _watched_wait(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wait(work: Any, *args: Any, **kwargs: Any) -> Any:
            result = function(work, *args, **kwargs)
            self._complete(work)
            return result

        return wait

    def _watched_future(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def get_future(work: Any, *args: Any, **kwargs: Any) -> Any:
            # Nobody sees when the future is waited for.
            self._complete(work)
            return function(work, *args, **kwargs)

        return get_future

    def _complete(self, work: Any) -> None:
        with self._lock:
            _, operation = self._pending.pop(id(work), (None, None))
            if operation is not None:
                self._bundle.wait(operation)
