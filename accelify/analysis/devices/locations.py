"""Where tensors are: on the host or on the device, in the script as it is written and once prepare places its batches.

A prepared loader puts a batch on the device at the head of the loop, which can be earlier than the script did. Tensors
that the script made on the host to use with the batch until its move have to follow. Called twice, with `placed` and
without, this finds where the devices before and after conversion differ.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property

from accelify.analysis import knowledge as k
from accelify.analysis import values as v
from accelify.analysis.data.collated_parts import are_plain, collated_parts
from accelify.analysis.data.loaders import gives_host_tensors
from accelify.analysis.devices.moved_batch_entries import FilledBatches
from accelify.analysis.devices.tensor_makers import (
    ARRAY,
    ARRAYS,
    DEVICE,
    HANDING_ON,
    HOST,
    HOST_MAKERS,
    MAKERS,
    NOWHERE,
    NUMBERS,
    OF_ARRAYS,
    Place,
    comprehension_of,
    given_back,
    is_display,
    is_list_of_numbers,
    is_text,
    moves_to_a_device,
    returned_by,
    together,
    union,
)
from accelify.analysis.metrics.collected import Collected, collected, is_list
from accelify.analysis.scopes import Scope, spread_to
from accelify.analysis.script import ScriptModel, is_in_model
from accelify.analysis.statements.bindings import Bindings
from accelify.analysis.syntax import (
    call_argument,
    call_keyword,
    dotted,
    target_names,
)
from accelify.analysis.values import Entity, Imported, Sequence

_DEEPEST = 14

_SETTING_DEFAULTS = frozenset({"torch.set_default_tensor_type", "torch.set_default_device"})


def before_and_after(
    script: ScriptModel,
    prepared: set[Entity],
    is_cpu: Callable[[ast.expr], bool],
    loops: Iterable[ast.For | ast.AsyncFor],
) -> tuple[Locations, Locations]:
    """Where tensors are in the script as it is, and where they are once prepare places its batches.

    Args:
        script: its model.
        prepared: the loaders and models that prepare places.
        is_cpu: whether an expression is the CPU by name.
        loops: over batches, of which what they collect is followed.
    """
    contained, bindings = collected(script, loops), Bindings(script.tree)
    before = Locations(script, prepared, False, is_cpu, contained, bindings)
    return before, Locations(script, prepared, True, is_cpu, contained, bindings)


class Locations:
    """Answers where the value of an expression is.

    Args:
        script: its model.
        prepared: the loaders and models that prepare places.
        placed: whether it does: False asks about the script as it is written.
        is_cpu: whether an expression is the CPU by name.
        collected: by scope and text what loops put into lists.
        bindings: of the names of the script, to share them.
    """

    def __init__(
        self,
        script: ScriptModel,
        prepared: set[Entity],
        placed: bool,
        is_cpu: Callable[[ast.expr], bool],
        collected: Collected | None = None,
        bindings: Bindings | None = None,
    ) -> None:
        self.is_cpu = is_cpu
        self.collected = collected or {}
        self.script = script
        self.tree = script.tree
        self.prepared = prepared
        # Of `prepared`, the models that have to be moved to go with it, each with the call that makes it.
        self.following: dict[Entity, ast.Call] = {}
        self.placed = placed
        self.moves = placed or any(moves_to_a_device(self.script, call) for call in script.calls())
        self._defaults = bool(script.calls_to(_SETTING_DEFAULTS))
        self._loops = {id(loop): loaders for loop, loaders in script.loader_loops}
        self._on_host: dict[Entity, bool] = {}
        self._known: dict[ast.AST, Place] = {}
        self._settled: dict[ast.AST, Place] = {}
        self._cut_short: dict[ast.AST, Place] = {}
        self._bindings = bindings or Bindings(script.tree)
        self._filled = FilledBatches(script)
        self._collates = any(m.tree.mentions(b"collate_fn") for m in script.program.modules.values())
        self._active: set[object] = set()
        self._cut = 0

    def settle(self, node: ast.AST, *places: str) -> None:
        """Note that an edit decides where an expression is from now on."""
        self._settled[node] = frozenset(places)
        self._known.clear()

    def of(self, node: ast.expr) -> Place:
        """Where an expression can be: nowhere for what is no tensor, or not known to be one."""
        if node in self._settled:
            return self._settled[node]
        found = self._known.get(node)
        if found is None:
            found = self._cut_short.get(node)
        if found is None:
            if node in self._active or len(self._active) > _DEEPEST * 4:
                self._cut += 1
                return NOWHERE
            self._active.add(node)
            cut = self._cut
            found = self._look(node)
            self._active.discard(node)
            # What was cut short by the guard against circles is known only where the circle began; until there it
            # represents itself, or functions that call each other would be walked through along every path.
            if cut == self._cut or not self._active:
                self._known[node] = found
            else:
                self._cut_short[node] = found
            if not self._active:
                self._cut_short.clear()
        return found

    def makes(self, call: ast.Call) -> bool:
        """Whether a call of torch makes a new tensor, whatever its arguments are."""
        head, _, last = (self._name_of(call.func) or "").rpartition(".")
        return head == "torch" and (last in MAKERS or last in HOST_MAKERS)

    def _name_of(self, func: ast.expr) -> str | None:
        """The qualified name of a library's function; of `Tensor = torch.cuda.FloatTensor if cuda else ...` none."""
        names = {w.name for w in self.script.values(func) if isinstance(w, Imported)}
        return ".several" if len(names) > 1 else self.script.qualname(func)

    # -- expressions

    def _look(self, node: ast.expr) -> Place:
        if isinstance(node, ast.Name):
            return self._name(node)
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, ast.Attribute):
            return self._attribute(node)
        if isinstance(node, ast.Subscript):
            entries, only = self._filled.afterwards(node)
            return union([*map(self.of, entries), NOWHERE if only else self.of(node.value)])
        if isinstance(node, ast.BinOp):
            if any(is_text(side) for side in (node.left, node.right)):
                return NOWHERE  # "feat/%s.npy" % name
            return together([self.of(node.left), self.of(node.right)])
        if isinstance(node, ast.Compare):
            if all(isinstance(op, (ast.Is, ast.IsNot, ast.In, ast.NotIn)) for op in node.ops):
                return NOWHERE
            return together([self.of(node.left), *map(self.of, node.comparators)])
        if isinstance(node, ast.UnaryOp):
            return NOWHERE if isinstance(node.op, ast.Not) else self.of(node.operand)
        if isinstance(node, ast.IfExp):
            return self.of(node.body) | self.of(node.orelse)
        if isinstance(node, (ast.Tuple, ast.List)):
            return union(self.of(e) for e in node.elts)
        if isinstance(node, (ast.ListComp, ast.GeneratorExp)):
            return self.of(node.elt)
        if isinstance(node, ast.DictComp):
            return self.of(node.value)
        if isinstance(node, (ast.Starred, ast.NamedExpr)):
            return self.of(node.value)
        return NOWHERE

    def _attribute(self, node: ast.Attribute) -> Place:
        if node.attr in ("shape", "dtype", "device", "ndim", "is_cuda", "requires_grad"):
            return NOWHERE
        if self.script.qualname(node) is not None:
            return NOWHERE
        text = dotted(node)
        scope = self.script.scope_of(node)
        if isinstance(node.value, ast.Name) and node.value.id == scope.self_name():
            if is_in_model(self.script, scope) or scope.owner_class is None:
                return NOWHERE  # parameters and buffers follow their module
            own = scope.owner_class
            values = [
                stmt.value
                for stmt in self.tree.assigns(text or "")
                if self.script.scope_of(stmt).owner_class is own
            ]
            values += self.collected.get((own, text or ""), [])
            return union(self.of(value) for value in values)
        return self.of(node.value)

    def _call(self, node: ast.Call) -> Place:
        name = self._name_of(node.func)
        if name is not None and name not in k.SPLIT_RUNS:
            return self._library_call(name, node)
        given = [*node.args, *[kw.value for kw in node.keywords]]
        if self._batch_of(node):
            return self._batch_place(node)
        models = self.script.models_run(node)
        if models:
            if models <= self.prepared and not self.script.callees(node) - self._forwards(node):
                if not self.placed and together([self.of(a) for a in given]) == {HOST}:
                    return frozenset({HOST})  # as the script is, it runs where its arguments are
                return frozenset({DEVICE if self.moves else HOST})
            return NOWHERE
        if self.script.is_a(node.func, v.CRITERION):
            return together([self.of(a) for a in given])
        callees = self.script.callees(node)
        if callees:
            return union(
                self.of(value) for value in [*returned_by(self.script, node), *given_back(self.script, node)]
            )
        if isinstance(node.func, ast.Attribute):
            return self._method(node, node.func)
        return NOWHERE

    def _forwards(self, node: ast.Call) -> set[object]:
        return {s for s in self.script.callees(node) if getattr(s.node, "name", "") == "forward"}

    def _method(self, node: ast.Call, func: ast.Attribute) -> Place:
        if func.attr == "cpu":
            return frozenset({HOST})
        if func.attr == "cuda":
            return frozenset({DEVICE})
        if func.attr == "numpy":
            return frozenset({ARRAY})
        if func.attr in NUMBERS:
            return NOWHERE
        if func.attr == "to":
            return self._moved(node, func)
        if func.attr == "type_as" and node.args:
            return self.of(node.args[0])
        if func.attr == "type" and node.args:
            return self._of_type(node.args[0], func)
        return self.of(func.value)

    def _of_type(self, given: ast.expr, func: ast.Attribute) -> Place:
        """The device of `x.type(...)`: a tensor type decides it, a dtype does not."""
        name = given.value if isinstance(given, ast.Constant) else self._name_of(given)
        if not isinstance(name, str) or not name.startswith("torch."):
            return NOWHERE  # x.type(Tensor), which can be a type of the device
        if not name.endswith("Tensor"):
            return self.of(func.value)
        return frozenset({DEVICE if name.startswith("torch.cuda.") else HOST})

    def _moved(self, node: ast.Call, func: ast.Attribute) -> Place:
        target = call_argument(node, 0, "device")
        if target is None or (self.script.qualname(target) or "").startswith("torch."):
            return self.of(func.value)
        return self._named_place(target)

    def _named_place(self, device: ast.expr) -> Place:
        """The place that a device represents."""
        if isinstance(device, ast.Call) and device.args:
            device = device.args[0]
        if self.is_cpu(device):
            return frozenset({HOST})
        if isinstance(device, ast.Attribute) and device.attr == "device":
            beside = self.of(device.value)
            if beside:
                return beside
        if self.of(device):
            return self.of(device)  # x.to(other)
        if isinstance(device, ast.Constant) or self.script.is_a(device, v.DEVICE):
            return frozenset({DEVICE})
        return NOWHERE

    def _library_call(self, name: str, node: ast.Call) -> Place:
        head, _, last = name.rpartition(".")
        given = [*node.args, *[kw.value for kw in node.keywords if kw.arg != "device"]]
        if name == "builtins.next":
            return self._batch_place(node)
        if name in HANDING_ON or name in k.VARIABLE or name in ("copy.deepcopy", "copy.copy"):
            return together([self.of(a) for a in given])
        if head == "torch.nn.utils.rnn":
            return self.of(given[0]) if given else NOWHERE  # the lengths beside it stay on the host
        if name.split(".")[0] in ARRAYS:
            return frozenset({ARRAY})
        if head == "torch.cuda" and last.endswith("Tensor"):
            return frozenset({DEVICE})
        if head == "torch" and (last in MAKERS or last in HOST_MAKERS):
            device = call_keyword(node, "device")
            if device is not None:
                return self._named_place(device)
            if self._defaults or (last == "tensor" and self._is_number(node)):
                return NOWHERE
            return frozenset({HOST})
        if head == "torch" and (last.endswith("_like") or last == "as_tensor"):
            device = call_keyword(node, "device")
            beside = self.of(node.args[0]) if node.args else NOWHERE
            return self._named_place(device) if device is not None else beside - {ARRAY} or beside & {HOST}
        if head in ("torch", "torch.nn.functional", "torch.linalg", "torch.special", "torchvision.utils"):
            return together([self.of(a) for a in given])
        return NOWHERE

    def _is_number(self, node: ast.Call) -> bool:
        """`torch.tensor(0.5)` has no dimension, and goes with tensors anywhere."""
        if not node.args or is_display(node.args[0]):
            return False
        made = node.args[0]
        if self.of(made) & {HOST, DEVICE}:
            return True  # of a tensor it makes another one beside it
        if isinstance(made, ast.Name) and is_list_of_numbers(self.script, made):
            return False
        while isinstance(made, ast.Call) and isinstance(made.func, ast.Attribute):
            if made.func.attr in OF_ARRAYS or self.of(made) == {ARRAY}:
                return False
            made = made.func.value
        return True

    # -- batches

    def _batch_of(self, node: ast.expr) -> bool:
        """Whether a call draws the next batch: `iterator.next()`."""
        drawing = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        return drawing and node.func.attr in ("next", "__next__") and self.script.is_a(node, v.BATCH)  # type: ignore[attr-defined]

    def _batch_place(self, node: ast.expr) -> Place:
        found = self.script.entities(node, v.BATCH)
        for pair in self.script.values(node):
            if isinstance(pair, Sequence):  # next(enumerate(loader))
                found |= {w for w in pair.any() if isinstance(w, Entity) and w.kind == v.BATCH}
        return self._placed({t for entity in found for t in entity.link("loader")})

    def _of_next(self, node: ast.expr, index: int) -> Place | None:
        """Where a part of what `next(enumerate(loader))` gives is; None for any other expression."""
        if not isinstance(node, ast.Call) or self.script.qualname(node.func) != "builtins.next":
            return None
        pairs = [w for w in self.script.values(node) if isinstance(w, Sequence) and index < len(w.elements)]
        parts = [w for pair in pairs for w in pair.elements[index] if isinstance(w, Entity)]
        loaders = {t for w in parts if w.kind == v.BATCH for t in w.link("loader")}
        return self._placed(loaders) if pairs else None

    def _gives_batches_itself(self, node: ast.expr) -> bool:
        """Whether it may be an object around a loader, such as one that fetches ahead: it can move what it draws."""
        return any(t.cls and t.cls.method("__iter__") for t in self.script.entities(node, v.INSTANCE))

    def _placed(self, loaders: set[Entity]) -> Place:
        if self.placed and loaders and loaders <= self.prepared:
            return frozenset({DEVICE})
        for loader in loaders - self._on_host.keys():
            self._on_host[loader] = gives_host_tensors(self.script, loader)
        if not loaders or not all(self._on_host[t] for t in loaders):
            return NOWHERE
        # A function that gets a loader that is prepared from one call and one that is not from another.
        mixed = self.placed and not loaders.isdisjoint(self.prepared)
        return frozenset({HOST, DEVICE} if mixed else {HOST})

    # -- names

    def _name(self, node: ast.Name) -> Place:
        scope = self.script.scope_of(node)
        owner = scope.resolve(node.id)
        if owner is None or (owner, node.id) in self._moved_in_place:
            return NOWHERE
        target = comprehension_of(self.script, node)
        if target is not None:
            return self._element(target.target, target.iter, node.id)
        if owner is not scope:
            return union(self._bound(b, node.id) for b in self._all_bindings(node.id, owner.node))
        if self._collates and are_plain(collated_parts(self.script, self.bindings, node)):
            return NOWHERE  # `[len(row) for row in rows]`
        entries, only = self._filled.afterwards(node)
        places: list[Place] = [self.of(entry) for entry in entries]
        if only:
            return union(places)
        for binding in self._bindings.of_tensors(node):
            if binding is None:
                places.append(self._parameter(node.id, owner))
            else:
                places.append(self._bound(binding, node.id))
        return union(places)

    @cached_property
    def _moved_in_place(self) -> set[tuple[Scope | None, str]]:
        """What statements move without an assignment: `batch.to(device)`, of an object that changes itself."""
        return {
            (self.script.scope_of(stmt).resolve(stmt.value.func.value.id), stmt.value.func.value.id)
            for stmt in self.tree.nodes(ast.Expr)
            if isinstance(stmt.value, ast.Call)
            and isinstance(stmt.value.func, ast.Attribute)
            and stmt.value.func.attr in ("to", "cuda")
            and isinstance(stmt.value.func.value, ast.Name)
        }

    def _parameter(self, name: str, scope: Scope) -> Place:
        return union(self.of(given) for given in self.given(name, scope))

    def given(self, name: str, scope: Scope) -> list[ast.expr]:
        """What the calls of a function hand to one of its parameters."""
        parameters = scope.positional()
        calls = self.script.callers(scope) if name != scope.self_name() else []
        found = [value for call in calls for value, taken in spread_to(call, scope) if taken == name]
        if name in parameters:
            index = parameters.index(name) - (1 if scope.self_name() is not None else 0)
            found += [value for call in calls if (value := call_argument(call, index, name)) is not None]
        return found

    def bindings(self, node: ast.Name) -> list[ast.stmt | None]:
        """The statements that can have bound a name where it is read; None represents a parameter."""
        return self._bindings.of(node)

    def _all_bindings(self, name: str, root: ast.AST) -> Iterator[ast.stmt]:
        body = getattr(root, "body", [])
        for stmt in body:
            if not isinstance(stmt, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                yield from self._bindings.inside(stmt, name)

    def _bound(self, stmt: ast.stmt, name: str) -> Place:
        if isinstance(stmt, ast.AnnAssign):
            return self.of(stmt.value) if stmt.value is not None else NOWHERE
        if isinstance(stmt, (ast.For, ast.AsyncFor)):
            return self._element(stmt.target, stmt.iter, name, stmt)
        if not isinstance(stmt, ast.Assign):
            return NOWHERE
        for target in stmt.targets:
            if name in target_names(target):
                return self._part(target, stmt.value, name)
        return NOWHERE

    def _part(self, target: ast.expr, value: ast.expr, name: str) -> Place:
        """Where the part of a value is that a name in a target is bound to."""
        if isinstance(target, (ast.Tuple, ast.List)):
            index = next(i for i, e in enumerate(target.elts) if name in target_names(e))
            starred = any(isinstance(e, ast.Starred) for e in [*target.elts, *getattr(value, "elts", [])])
            if (
                isinstance(value, (ast.Tuple, ast.List))
                and len(value.elts) == len(target.elts)
                and not starred
            ):
                return self._part(target.elts[index], value.elts[index], name)
            drawn = self._of_next(value, index)
            if drawn is not None:
                return drawn
            returned = returned_by(self.script, value) if isinstance(value, ast.Call) else []
            if returned and not starred and not self.script.models_of(value.func):  # type: ignore[attr-defined]
                return union(
                    self.of(r.elts[index]) if isinstance(r, ast.Tuple) and index < len(r.elts) else self.of(r)
                    for r in returned
                )
        elif self.collected and is_list(value):
            owner = self.script.scope_of(value).resolve(name)
            return union(self.of(one) for one in [value, *self.collected.get((owner, name), [])])
        return self.of(value)

    def _element(
        self, target: ast.expr, iterated: ast.expr, name: str, loop: ast.stmt | None = None
    ) -> Place:
        """Where what a loop binds to a name is."""
        node = iterated
        while isinstance(node, ast.Call) and node.args:
            called = (
                node.func.id if isinstance(node.func, ast.Name) else self.script.qualname(node.func) or ""
            )
            if called == "enumerate" and isinstance(target, ast.Tuple) and len(target.elts) == 2:
                if name in target_names(target.elts[0]):
                    return NOWHERE
                target, node = target.elts[1], node.args[0]
            elif called == "zip" and isinstance(target, ast.Tuple) and len(target.elts) == len(node.args):
                index = next(i for i, e in enumerate(target.elts) if name in target_names(e))
                target, node = target.elts[index], node.args[index]
            elif k.is_progress(called) or called in ("iter", "list", "reversed", "islice"):
                node = node.args[0]
            else:
                break
        if (
            isinstance(node, ast.Name)
            and (self.script.scope_of(node).resolve(node.id), node.id) in self.collected
        ):
            return self.of(node)
        loaders = self.script.iterated(node)
        if loaders and self._gives_batches_itself(node):
            return NOWHERE
        if loaders:
            return self._placed(loaders)
        if loop is not None and id(loop) in self._loops and node is iterated:
            return self._placed(self._loops[id(loop)])
        return self.of(node)
