"""Calls of library functions: what their rows in the knowledge say; by default a function of all arguments."""

from __future__ import annotations

import ast
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from accelify.domains.placement import (
    SAME,
    Kind,
    function,
    own,
)
from accelify.domains.replacing import replace
from accelify.heap import misuse, options, shapes, single_numbers
from accelify.heap.axes import arguments_of
from accelify.heap.configured import FRAME, is_in_one_folder
from accelify.heap.containers import (
    array_of,
    elements,
    put,
)
from accelify.heap.fields import merged
from accelify.heap.found_files import is_found
from accelify.heap.host_reads import meet_host
from accelify.heap.library_state import LEVELS, MAIN_LOGS, LibraryState
from accelify.heap.model_parameters import has_own_parameters
from accelify.heap.models import SIGNS, asked, gone_through, mark
from accelify.heap.moved import COPYING, are_passed, sent
from accelify.heap.paths import TEMPORARY, joined_path, known_of, pattern, with_text
from accelify.heap.prepared_models import loaded, shaped
from accelify.heap.state import is_part, mode_set, part_written, registered, statistics_begun
from accelify.heap.steps import STEPPING, stepped
from accelify.heap.texts import formatted, text_of
from accelify.heap.transfers import Transfers
from accelify.heap.unknown_calls import UnknownCalls
from accelify.heap.values import (
    BATCH,
    FOUND_FLAG,
    MAIN_FLAG,
    NONE,
    OTHERS_FLAG,
    TENSOR,
    UNSET,
    Bound,
    Container,
    Function,
    Guard,
    Instance,
    Library,
    Value,
    constant,
    is_zero,
)
from accelify.heap.wrapped_weights import BARE_WEIGHTS, WRAPPED_WEIGHTS
from accelify.heap.wrapper_attributes import engine_called, split
from accelify.knowledge import Row

if TYPE_CHECKING:
    from accelify.heap.interpreter import Interpreter

Args = Sequence[Value]
Keywords = Mapping[str, Value]
# Weights by the names that they have in a wrapper.
# In place of a level: every process sets up its loggers; the main process alone does, so that the others have Python's
# level of warnings. It is no level that `disable` sets, which a set-up by all does not undo.
_EACH_LOGS = -1
# Calls that keep the loggers of the processes quiet that make them.
_SILENCING = frozenset(
    {"logging.basicConfig", "logging.disable", "setLevel", "disable_progress_bar", "set_verbosity_error"}
)
# What asks whether something is there, and reads nothing of it.
QUESTIONS = frozenset({"exists", "lexists", "isfile", "isdir", "is_file", "is_dir"})
# What runs a function beside this process, and what it must not do there.
_STARTED = frozenset({"multiprocessing.Process", "torch.multiprocessing.Process", "threading.Thread"})
_OF_RANKS = frozenset({"backward", "step", "collective", "prepare", "accelerator"})
# The logger and the trackers of Accelerate, and of the runtime.
_OF_MAIN = ("accelerate.logging.MultiProcessAdapter.", "accelerate.tracking.GeneralTracker.")
# Of a tracker: the path of its files, where each process has another.
_OWN_FILES = "#files"
# What arrays do in place that leaves the batch's figures in them.
_IN_PLACE = frozenset({"plus", "minus", "times", "over"})
# What a Trainer of transformers, its arguments and its state answer.
_ASKING_FOR_MAIN = frozenset({"is_world_process_zero", "is_local_process_zero"})
# What may call a function that it is given.
_CALLING = frozenset({"none", "new", "pure", "own", "unknown"})


def _is_of_main(row: Row, keywords: Keywords) -> bool:
    """Whether a function does on the main process alone what its row says: of itself, or as it is asked to.

    A logger of Accelerate that is asked for more is meant to write on every process.
    """
    asked = keywords.get("is_main_process")
    return row.name.startswith(_OF_MAIN) or (asked is not None and asked.type == MAIN_FLAG)


class LibraryCalls:
    """Makes calls of what is not in the project."""

    def __init__(self, engine: Interpreter) -> None:
        self.engine = engine
        self.run = engine.run
        self.state = LibraryState(engine)
        # What calls made of their arguments in place: by call, by the argument's number or name, -1 for the receiver.
        self.mutated: dict[ast.AST, dict[int | str, Value]] = {}
        self.unknown_calls = UnknownCalls(engine)
        self.transfers = Transfers(engine)

    def call(self, name: str, args: Args, keywords: Keywords, node: ast.AST) -> Value:
        """A call of a function or class of a library by its dotted name."""
        self._silenced(name, args, keywords)
        knowledge = self.run.knowledge
        known = knowledge.canonical(name)
        row = knowledge.row(known)
        if known in COPYING:
            are_passed(self.run, args, node)
        if self.run.checks:
            misuse.of_call(self.run, known, args, keywords, node)
            split(self.run, known, args)
        else:
            misuse.of_conversion(self.run, known, args, keywords, node)
        keywords = misuse.without_devices(keywords)
        if row is None or row.transfer == "unknown":
            return self.unknown_calls.function(Value(refs=(Library(name),)), args, keywords, node)
        unbound = bool(args) and any(one.receiver for one in row.path)  # `Path.exists(path)`
        made = self._by_row(row, name, args, keywords, node, receiver=unbound)
        return replace(made, text=known_of(args[0])) if known == "torch.device" and len(args) == 1 else made

    def method(self, receiver: Value, name: str, args: Args, keywords: Keywords, node: ast.AST) -> Value:
        """A call of a method of something that is not of the project."""
        self._silenced(name, args, keywords)
        single_numbers.of_call(self.run, name, receiver, node)
        if self.run.checks:
            misuse.of_method(self.run, receiver, name, args, keywords, node)
            if name == "setLevel" and args:
                self.state.set_level(receiver, args[0])
            if name in _ASKING_FOR_MAIN:
                return Value(own(), self.run.reason(node, "only on the main process"), type=MAIN_FLAG)
            if (made := engine_called(self.run, receiver, name, args, keywords, node)) is not None:
                return made
        else:
            misuse.of_move(self.run, name, args, keywords, node)
        if name == "add_argument":
            options.added(self.run, receiver, args, keywords)
        elif name == "parse_args":
            return options.parsed(self.run, receiver, node)
        keywords = misuse.without_devices(keywords)
        if name in ("to", "cuda"):
            # Wherever a tensor lies, it is the same.
            args = [value if value.place.is_same else value.placed(SAME) for value in args]
        instance = next(iter(receiver.of(Instance)), None)
        if name == "backward" and (instance is None or instance.kind == "object"):
            self.run.meet("backward", node, "backward", [receiver], detail="plain")
            return NONE
        if instance is not None and instance.kind in STEPPING and name == "step":
            stepped(self.engine, instance, args, keywords, node)
            return NONE
        if (
            name in ("register_buffer", "register_parameter")
            and instance is not None
            and instance.kind == "module"
            and len(args) > 1
        ):
            registered(self.run, instance, args[0], args[1], name.removeprefix("register_"))
        if instance is not None and instance.kind == "module":
            sent(self.run, instance, name, args)
            asked(self.run, instance, name, args)
            loaded(self.run, instance, name)
            if name in ("train", "eval"):
                mode_set(self.run, instance, name, args, node)
        if receiver.type == BATCH and receiver.where and name in ("to", "cuda"):
            # It may be an object that moves in place.
            self.mutated.setdefault(node, {})[-1] = replace(receiver, where="")
        statistics_begun(self.run, name, node)
        if name in SIGNS:
            mark(self.run, receiver, trained=True)
        if name == "parameters" and instance is not None and has_own_parameters(self.run, instance):
            return self._parameters(receiver, node)
        weights = name == "state_dict" and instance is not None and instance.kind == "module"
        if (
            weights
            and instance is not None
            and instance.prepared
            and self.run.at_model
            and not self.run.in_place
        ):
            return Value(type=WRAPPED_WEIGHTS)
        type_ = self._type_of(receiver, instance)
        if type_ == "builtins.str":
            if name == "format":
                return formatted(self.engine, receiver, args, keywords, node)
            return text_of(self.engine, node, [receiver, *args, *keywords.values()])
        row = self.run.knowledge.method(type_ or None, name)
        # What arrays have in common says nothing of a model, or of an object that takes in what it gets.
        kind = "" if instance is None else instance.kind
        common = row is not None and row.name.startswith("?.") and kind in ("object", "module")
        mutating = row is not None and any(one.receiver for one in (*row.mutates, *row.overwrites))
        taken = common and instance is not None and self.run.read(instance, "#bag") is not None
        takes = taken or (
            common
            and (mutating or kind == "module")
            and not all(array_of(value).is_same for value in [*args, *keywords.values()])
        )
        if row is None or row.transfer == "unknown" or takes:
            return self.unknown_calls.method(receiver, instance, name, args, keywords, node)
        made = self._by_row(row, name, [receiver, *args], keywords, node, receiver=True)
        return replace(made, type=BARE_WEIGHTS) if weights and self.run.checks else made

    def _parameters(self, receiver: Value, node: ast.AST) -> Value:
        made = self.run.allocate((node, "parameters"), lambda: Instance(None, "", "parameters"))
        self.run.store.set(made, "#of", receiver)
        return Value(refs=(made,))

    def _silenced(self, name: str, args: Args, keywords: Keywords) -> None:
        if self.run.checks:
            self.state.set_up(name, args, keywords)
        if name not in _SILENCING:
            return
        self.run.depends()
        level = next((value for value in (*args, keywords.get("level", NONE)) if value.of(Library)), NONE)
        names = [ref.name.rpartition(".")[2] for ref in level.of(Library)]
        # That of the main process stands before that of the others, of which nothing is known where it is a text.
        parted = name == "setLevel" and any(value.place.kind is Kind.MAIN for value in args)
        parted = parted or (len(names) == 2 and level.place.kind is Kind.MAIN)
        names = names if len(names) == 2 or not parted else ["ERROR"]
        if parted or (name != "logging.basicConfig" and any(one.kind == "others" for one in self.run.guards)):
            # A logger's own level lets it write what is at it.
            below = int(name in ("setLevel", "logging.basicConfig"))
            self.run.logs_once = LEVELS.get(names[-1] if names else "", logging.CRITICAL) - below
        elif name == "logging.basicConfig" and self.run.logs_once in (0, MAIN_LOGS):
            # Where nothing sets them up, loggers write warnings and worse.
            kinds = {one.kind for one in self.run.guards}
            asked = LEVELS.get(names[-1], 0) if names else 0
            if "main" not in kinds:
                self.run.logs_once = asked - 1 if asked > logging.INFO and "others" in kinds else _EACH_LOGS
            elif kinds == {"main"}:
                self.run.logs_once = MAIN_LOGS

    def _type_of(self, receiver: Value, instance: Instance | None) -> str:
        if instance is not None:
            return instance.type
        if receiver.type == BARE_WEIGHTS:
            return "builtins.dict"
        if receiver.type == "#batch" or not receiver.type:
            return TENSOR if not receiver.place.is_same or receiver.type else ""
        return receiver.type

    def object_called(self, ref: Instance, args: Args, keywords: Keywords, node: ast.AST) -> Value:
        """A call of an object of a library's class: a module, a loss, a metric, a transform."""
        shaped(self.run, ref)
        through = gone_through(self.engine, ref, args, node)
        if through is not None:
            return through
        row = self.run.knowledge.method(ref.type or None, "__call__")
        if row is not None and row.transfer != "unknown":
            made = self._by_row(
                row, ref.type.rpartition(".")[2], [Value(refs=(ref,)), *args], keywords, node, receiver=True
            )
            given = next(iter([*args, *keywords.values()]), NONE)
            made = shapes.pooled(self.run, ref.type.rpartition(".")[2], args, made, node)
            made = replace(made, place=shapes.of_layer(self.run, ref, row, made.place, args, node))
            made = self.transfers.along_batches(ref, given, made, node) if ref.kind == "module" else made
            return shapes.with_states(self.run, row, made, node)
        if ref.kind == "loss":
            remembered = self.run.read(ref, "reduction")
            word = (
                remembered.const if remembered is not None and isinstance(remembered.const, str) else "mean"
            )
            weighs = self.run.read(ref, "#weighs")
            return self.transfers.lost(word, args, keywords, node, str(weighs.const) if weighs else "")
        if ref.kind == "module":
            places = [array_of(value) for value in [*args, *keywords.values()]]
            return self.run.made(node, function(places, rowwise=True), *args, type_=TENSOR)
        return self.unknown_calls.method(Value(refs=(ref,)), ref, "__call__", args, keywords, node)

    # Rows

    def _by_row(
        self, row: Row, name: str, args: Args, keywords: Keywords, node: ast.AST, receiver: bool = False
    ) -> Value:
        shift = int(receiver)
        met = len(self.run.events)
        if row.transfer in _CALLING and row.kind in ("", "object"):
            self.unknown_calls.callbacks(args[shift:], keywords, node)
        # What lies in the temporary folder has another name on each process.
        is_temporary = row.name.startswith("tempfile.") and bool(row.effect)
        happens = bool(row.effect) and not is_temporary and self._happens(row, args, keywords, shift)
        if row.effect == "tracker.start" and not happens:
            self.run.meet("tracker.off", node, name)
        if happens and self.state.is_heard(row):
            shown = [value for one in row.content for value in arguments_of(one, args, keywords, shift)]
            shown += self.state.shown(row, args[0] if receiver else None)
            if row.effect == "log.write" and (label := self.state.label()) is not None:
                shown.append(label)
            if row.effect in ("terminal.write", "log.write"):
                shown = self.engine.expressions.shown(shown, node)
            paths = self._paths(row, args, keywords, shift)
            if (
                self.run.checks
                and receiver
                and not paths
                and any(one.kind == "file" for one in args[0].of(Instance))
            ):
                paths = [args[0]]
            files = [
                path
                for one in args[:shift]
                for ref in one.of(Instance)
                if (path := self.run.read(ref, _OWN_FILES)) is not None
            ]
            paths = files or paths
            default = row.kind == "tracker" or row.effect == "network.get"  # they have a folder of their own
            if row.path and not paths and not shown and not default:
                return self.transfers.of(row, args, keywords, node)  # no file is named
            if row.effect == "process.run":
                shown = [
                    with_text(value, [" ".join(map(pattern, elements(self.run, value) or [value]))])
                    for value in shown
                ]
            guards = []
            given = [ref for value in [*args, *keywords.values()] for ref in value.of(Instance)]
            if any(self.run.read(ref, "#once") is not None for ref in given):
                guards.append(Guard("main", self.run.reason(node, "a file that the main process has")))
            made_bar = row.effect == "bar.show" and row.transfer in ("iterates", "new")
            to = keywords.get("file", NONE).optional in (
                MAIN_FLAG,
                OTHERS_FLAG,
            )  # the others' goes to another file
            if made_bar and (to or _is_for_others(keywords.get("disable"))):
                guards.append(Guard("main", self.run.reason(node, "the bars of the other processes are off")))
            when = [value for one in row.when for value in arguments_of(one, args, keywords, shift)]
            if _is_of_main(row, keywords) or any(value.type == MAIN_FLAG for value in when):
                guards.append(Guard("main", self.run.reason(node, "only the main process does it")))
            level = LEVELS.get(row.name.rpartition(".")[2].upper(), 0)
            heard = row.effect == "log.write" and 0 < self.run.logs_once < level
            below = 0 < level < logging.WARNING and row.name.startswith("logging.")
            unset = self.run.checks and below and not self.state.is_set_up()
            if row.effect == "log.write" and (unset or self.run.logs_once > 0) and not heard:
                guards.append(
                    Guard("main", self.run.reason(node, "the loggers of the other processes are silent"))
                )
            if row.effect == "terminal.write" and (put := self.state.printing(row)) is not None:
                self.engine.calls.call(put, shown, {}, node)
                return self.transfers.of(row, args, keywords, node)
            self.run.meet(
                row.effect,
                node,
                name,
                shown,
                paths[0] if paths else None,
                guards=guards,
                detail="made"
                if made_bar
                else "untrained"
                if row.effect == "state.write" and receiver and not misuse.is_trained(self.run, args[0])
                else "loud"
                if heard and level >= logging.WARNING
                else self._mode(args, keywords, shift)
                if row.kind == "file"
                else "",
            )
        meet_host(self.run, node, row, args, keywords)
        result = self.transfers.of(row, args, keywords, node)
        if is_temporary:
            result = result.placed(own(), self.run.reason(node, TEMPORARY))
        if row.kind == "file":
            result = joined_path(result, self._paths(row, args, keywords, shift)[:1])
            for value in self._paths(row, args, keywords, shift):
                for ref in result.of(Instance) if value.place.kind is Kind.MAIN else []:
                    self.run.store.set(ref, "#once", constant(True))
        if row.name in _STARTED and not any(event.kind in _OF_RANKS for event in self.run.events[met:]):
            # What it runs is gone through, and is no part of the training: each rank needs its workers.
            for ref in result.of(Instance) if any(value.of(Function) for value in keywords.values()) else []:
                self.run.store.set(ref, "#worker", constant(True))
        if row.effect == "random.seed":
            result = self.transfers.random.seeded(row, result, args, node, receiver)
        if row.effect == "file.read" and row.name.rpartition(".")[2] in QUESTIONS:
            paths = self._paths(row, args, keywords, shift)
            result = replace(result, type=FOUND_FLAG)
            if is_found(self.run, paths, node):
                result = constant(True)
            elif self.run.checks and any(array_of(one).kind is Kind.CLOCK for one in paths):
                # Of a name by the clock there is what this process has made in this run, and nothing in all others.
                result = Value(type=FOUND_FLAG)
        self.state.note(row, args[0] if receiver else None, args[shift:], keywords, node)
        self.state.keep(row, args[shift:], result)
        if row.effect == "tracker.start" and self.run.checks:
            # What is done with it later goes to files of this process.
            for value in self._paths(row, args, keywords, shift):
                for ref in [] if array_of(value).is_uniform else result.of(Instance):
                    self.run.store.set(ref, _OWN_FILES, value)
        if row.mutates:
            self._mutate(row, result, args, keywords, node, shift)
        if row.overwrites:
            result = self._overwrite(row, result, args, keywords, node, shift)
        if row.returns and not result.type and result.const is UNSET:
            result = Value(result.place, result.why, result.refs, row.returns, token=None)
        return result

    def _mode(self, args: Args, keywords: Keywords, shift: int) -> str:
        """The mode in which a file is opened."""
        mode = keywords.get(
            "mode", keywords["flag"] if "flag" in keywords else args[1] if len(args) > 1 else NONE
        )
        return mode.const if isinstance(mode.const, str) else ""

    def _paths(self, row: Row, args: Args, keywords: Keywords, shift: int) -> list[Value]:
        return [value for one in row.path for value in arguments_of(one, args, keywords, shift)]

    def _happens(self, row: Row, args: Args, keywords: Keywords, shift: int) -> bool:
        """Whether an effect happens that an argument, or the configuration, asks for."""
        if row.name == FRAME and is_in_one_folder(self.engine):
            return False
        asked = [value for one in row.when for value in arguments_of(one, args, keywords, shift)]
        if row.effect == "process.run" and any(
            self.run.read(ref, "#worker") is not None for value in args[:shift] for ref in value.of(Instance)
        ):
            return False
        if row.kind == "file" and row.effect == "file.write" and self._mode(args, keywords, shift) == "r":
            return False
        if row.name.startswith("?.") and any(
            ref.type == "dict" for value in asked for ref in value.of(Container)
        ):
            return False  # `table.rename({"a": "b"})`
        for one in row.unless:
            given = [value.const for value in arguments_of(one, args, keywords, shift)]
            if (
                one.value in map(str, given)
                if one.value is not None
                else any(const is UNSET or const for const in given)
            ):
                return False
        return not row.when or any(value.const is UNSET or value.const for value in asked)

    def _mutate(
        self, row: Row, result: Value, args: Args, keywords: Keywords, node: ast.AST, shift: int
    ) -> None:
        given = [*args, *keywords.values()]
        if row.transfer == "draw" and self.transfers.random.exchanges_rounds(row, args, keywords):
            return
        if row.transfer == "draw" and result.place.kind is Kind.OWN:
            given.append(result)  # another order on each rank
        place = result.place if row.transfer == "mix" else function(map(array_of, given), rowwise=True)
        why = None if place.is_same else self.run.reason(node, f"`{self.run.segment(node)}`", *given)
        for one in row.mutates:
            if one.receiver and len(args) > 1 and row.transfer == "none":
                for value in arguments_of(one, args, keywords, shift):
                    merged(self.run, value)
            number = -1 if one.receiver else one.position
            for value in arguments_of(one, args, keywords, shift) if row.name.endswith("_") else ():
                part_written(self.run, value, Value(place, why), node)
            if place.is_same:
                for value in arguments_of(one, args, keywords, shift):
                    if number is not None and is_zero(value):
                        self.mutated.setdefault(node, {})[number] = replace(value, const=UNSET)
                continue
            for value in arguments_of(one, args, keywords, shift):
                for ref in value.of(Container):
                    put(self.run, ref, Value(place, why), filling="rounds")
                plain = all(isinstance(ref, Bound) for ref in value.refs) and not is_part(value)
                if plain and number is not None and value.place.is_same:
                    self.mutated.setdefault(node, {})[number] = Value(place, why, type=value.type)
                elif plain and one.receiver and row.transfer in _IN_PLACE and value.place != result.place:
                    changed = replace(value, place=result.place, why=result.why)
                    self.mutated.setdefault(node, {})[-1] = changed

    def _overwrite(
        self, row: Row, result: Value, args: Args, keywords: Keywords, node: ast.AST, shift: int
    ) -> Value:
        """Arguments that are written whole: nothing of what they were goes into what they become."""
        written = [value for one in row.overwrites for value in arguments_of(one, args, keywords, shift)]
        given = [value for value in [*args, *keywords.values()] if value not in written]
        place = function((array_of(value) for value in given), rowwise=True)
        made = self.run.made(
            node, result.place if row.transfer == "draw" else place, *given, type_=row.returns
        )
        for one in row.overwrites:
            number = -1 if one.receiver else one.position
            for value in arguments_of(one, args, keywords, shift):
                part_written(self.run, value, made, node)
                if number is not None and not is_part(value):
                    self.mutated.setdefault(node, {})[number] = replace(
                        made, type=value.type or made.type, where=value.where
                    )
        return replace(made, where=written[0].where if written else "") if row.returns else result


def _is_for_others(disable: Value | None) -> bool:
    """Whether `disable` keeps the bars of all processes but the main one off, or every bar."""
    return disable is not None and (disable.type == OTHERS_FLAG or disable.const is True)
