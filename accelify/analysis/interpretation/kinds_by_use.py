"""What something unknown is, by what a script does with it."""

from __future__ import annotations

from accelify.analysis import knowledge as k
from accelify.analysis import values as v
from accelify.analysis.interpretation.state import State
from accelify.analysis.values import Class, Entity, Value

_READING = frozenset({"torch.load", "pickle.load", "dill.load", "joblib.load"})


class KindsByUse(State):
    """The part of the interpreter that sets the kind of unknown `Entity` objects by their use."""

    # Those that are still unknown, and those that are part of another, with what they are there.
    _unknown: list[Entity]
    _of_entities: list[tuple[Entity, object, Entity]]
    # Those whose uses and names, so many, show no kind.
    _shows_none: dict[Entity, tuple[int, int]]
    # Those whose kind has changed, and which of the statements read is not known yet.
    _turned: set[Entity]

    def upgrade(self) -> None:
        """Set the kind of unknown `Entity` objects by their use."""
        self._unknown = [value for value in self._unknown if value.kind == v.UNKNOWN]
        for value in self._unknown:
            shown = len(value.uses), len(value.names)
            if self._shows_none.get(value) == shown:
                continue
            kind = kind_from_use(value)
            if kind is None:
                self._shows_none[value] = shown
            if kind == v.LOADER and self._is_another_path(value):
                continue
            if kind == v.OPTIMIZER and self._is_an_own(value):
                continue
            if kind is not None:
                self._turn_into(value, kind)
        self._upgrade_wholes()
        if self._turned:
            self.reads.changed_in_place(self._turned)
            self._turned.clear()

    def _turn_into(self, value: Entity, kind: str) -> None:
        value.earlier_kinds.append(value.kind)
        value.kind = kind
        self._turned.add(value)
        self.changed = True

    def _upgrade_wholes(self) -> None:
        """What is called, and whose parts are models, is a model: `zoo.make(name)` with `net.head.parameters()`."""
        parts: dict[Entity, dict[str, Entity]] = {}
        for whole, tag, value in self._of_entities:
            if whole.cls is not None:
                continue
            if whole.kind == v.MODEL or (whole.kind == v.UNKNOWN and "()" in whole.uses):
                if isinstance(tag, tuple) and tag[0] == "attribute":
                    parts.setdefault(whole, {})[str(tag[1])] = value
        for whole, named in parts.items():
            if any(part.kind == v.MODEL for part in named.values()):
                if whole.kind != v.MODEL:
                    self._turn_into(whole, v.MODEL)
                    whole.note("it is called, and a part of it has parameters()")
                for name, part in named.items():
                    self.add(whole.attributes.setdefault(name, set()), {part})

    def _is_another_path(self, entity: Entity) -> bool:
        """Whether an object of another name reaches a loader's variable only next to real loaders.

        A function that returns three loaders for one data set and three tensors for another one. What is read from
        a file is no other kind than the loaders that are made where there is no file.
        """
        read = entity.qualname in _READING
        if not read and all(k.LOADER_NAME.search(name) for name in entity.names):
            return False
        holding = [
            contained
            for (_, name), contained in self.variables.items()
            if entity in contained and k.LOADER_NAME.search(name)
        ]
        return bool(holding) and all(any(_is_torch_loader(w) for w in contained) for contained in holding)

    def _is_an_own(self, entity: Entity) -> bool:
        """Whether an object with `step` reaches a name next to an object of a plain class of the project with `step`.

        A file that the object was written to holds no optimizer of torch's.
        """
        classes = [value for value in self.entities.values() if isinstance(value, Class)]
        holding = [
            *(contained for (_, name), contained in self.variables.items() if name in entity.names),
            *(
                contained
                for cls in classes
                for name, contained in cls.attributes.items()
                if name in entity.names
            ),
        ]
        return any(
            isinstance(w, Entity)
            and w.kind == v.INSTANCE
            and w.cls is not None
            and w.cls.method("step") is not None
            for contained in holding
            if entity in contained
            for w in contained
        )


def kind_from_use(entity: Entity) -> str | None:
    """The kind that the methods called on something show it to be, with the names it goes by; None: they show none."""
    uses, names = entity.uses, entity.names
    wholes = entity.link(v.PART_OF) - {entity}
    if any(whole.kind == v.MODEL or "parameters" in whole.uses for whole in wholes):
        return None  # `model.get_input_embeddings()`, which is prepared with it
    if "zero_grad" in uses and ("step" in uses or "param_groups" in uses) and "parameters" not in uses:
        entity.note("zero_grad() and step() are called on it")
        return v.OPTIMIZER
    if "parameters" in uses and not uses & {"parse_args", "add_argument"}:
        entity.note("its parameters() are read")
        return v.MODEL
    if "load_state_dict" in uses and ("eval" in uses or "train" in uses):
        entity.note("it is loaded and switched between train() and eval()")
        return v.MODEL
    if (
        "()" in uses
        and ("zero_grad" in uses or {"train", "eval"} & uses)
        and any(k.MODEL_NAME.search(n) for n in names)
    ):
        entity.note("it is called and switched between train() and eval()")
        return v.MODEL
    if "unscale_" in uses or ("scale" in uses and "update" in uses and "step" in uses):
        entity.note("scale(), step() and update() are called on it")
        return v.SCALER
    if {"step"} <= uses and any(k.SCHEDULER_NAME.search(n) for n in names):
        entity.note("it is named like a scheduler and step() is called on it")
        return v.SCHEDULER
    if "step" in uses and any(k.OPTIMIZER_NAME.search(n) for n in names):
        entity.note("it is named like an optimizer and step() is called on it")
        return v.OPTIMIZER
    if "[]for" in uses and any(k.LOADER_NAME.search(n) for n in names) and not k.is_range(entity.qualname):
        entity.note("it is named like a loader and iterated")
        return v.LOADER
    if "()" in uses and any(k.CRITERION_NAME.search(n) for n in names):
        entity.note("it is named like a criterion and called")
        return v.CRITERION
    if "add_scalar" in uses or "add_image" in uses or "add_summary" in uses:
        entity.note("add_scalar() is called on it")
        return v.WRITER
    return None


def _is_torch_loader(value: Value) -> bool:
    if not isinstance(value, Entity) or value.kind != v.LOADER:
        return False
    bases = value.cls.external_bases() if value.cls is not None else {value.qualname}
    return bool(bases & k.LOADER_CLASSES)
