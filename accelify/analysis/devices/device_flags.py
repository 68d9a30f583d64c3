"""Device assignments, and what a script's `--no-cuda` style flags mean for `Accelerator(cpu=...)`."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Set
from functools import cached_property

from accelify.analysis import knowledge as k
from accelify.analysis import values as v
from accelify.analysis.devices.composed_device_texts import is_numbered_gpu
from accelify.analysis.devices.decisions import Decisions, Part, Setting
from accelify.analysis.devices.device_names import (
    DeviceAssignment,
    compares_to,
    has_else,
    is_field,
    is_option_for_gpu,
    names_cpu,
    option_name,
)
from accelify.analysis.devices.fallbacks import named_before
from accelify.analysis.devices.machine_flags import MachineFlags
from accelify.analysis.devices.options import holds_options
from accelify.analysis.files.effect_sites import defaults_of, is_stored
from accelify.analysis.scopes import Scope, handed_to
from accelify.analysis.script import ScriptModel
from accelify.analysis.statements.negation import negated
from accelify.analysis.syntax import (
    assigned_pairs,
    dotted,
    hides_arguments,
    names_in,
    walk,
)

# What an object has its device under.
_PARTS = ("device", "dev")


class Devices:
    """All device assignments of a script."""

    def __init__(self, script: ScriptModel) -> None:
        self.script = script
        self.tree = script.tree
        self.decisions = Decisions(script, self.wish, self._is_constant_in_use, self._read_by)
        self.assignments: list[DeviceAssignment] = []
        for stmt in [*self.tree.nodes(ast.Assign), *self.tree.nodes(ast.AnnAssign)]:
            if stmt.value is None:
                continue
            first = stmt.targets[0] if isinstance(stmt, ast.Assign) else stmt.target
            for target, value in assigned_pairs(first, stmt.value):
                if not isinstance(target, (ast.Name, ast.Attribute)):
                    continue
                if not self.is_device_expression(value) and not self._is_current(value, target):
                    continue
                if isinstance(target, ast.Attribute) and self._is_recorded_place(target, value):
                    continue
                whole = self._whole_choice(stmt) if value is stmt.value else None
                cpu, names = self._cpu(stmt, target)
                parent = self.tree.parent(stmt)
                if isinstance(parent, ast.If) and (stated := named_before(self.script, parent)) is not None:
                    whole, cpu, names = parent, f'str({stated.id}) == "cpu"', frozenset({stated.id})
                self.assignments.append(DeviceAssignment(stmt, whole, cpu, names, target, value))
        # Defaults of options that name the CPU, which is what the run is on only where nobody says another device.
        self._fields = [a for a in self.assignments if a.cpu == "True" and is_field(self.script, a.statement)]
        self.assignments = [a for a in self.assignments if a not in self._fields]
        # What a helper makes of the device that it gets belongs to the choice where it is called.
        helpers = {callee for a in self.assignments for callee in self._stated_callees(a)}
        self.assignments = [a for a in self.assignments if self.script.scope_of(a.statement) not in helpers]
        chosen = {self.script.scope_of(a.statement) for a in self.assignments}
        # `device = choose()`, where the choice is replaced in there.
        self.assignments = [a for a in self.assignments if not self._callees(a) & chosen]
        self.beside: list[DeviceAssignment] = []
        self.parts: list[
            tuple[DeviceAssignment, list[ast.Call]]
        ] = []  # the CPU, with the models made with it
        self._set_aside()
        self.assignments.sort(key=lambda a: self.tree.start(a.statement))

    def of_parts(self) -> Iterator[DeviceAssignment]:
        """The devices that are one part of what a helper of the project gives: `device, kind = select(args.device)`."""
        for stmt in self.tree.nodes(ast.Assign):
            target, value = stmt.targets[0], stmt.value
            if not isinstance(value, ast.Call) or not self.script.callees(value):
                continue
            parts: list[tuple[Part, ast.expr]] = []
            if isinstance(target, ast.Tuple):
                parts = [(i, one) for i, one in enumerate(target.elts) if self._is_read_as_device(one)]
            elif isinstance(target, ast.Name):
                parts = [(name, target) for name in _PARTS]
            for part, one in parts:
                if isinstance(gpu := self.decisions.of_part(value, part), Setting):
                    yield DeviceAssignment(stmt, None, gpu.opposite, gpu.names, one, value)

    def _is_read_as_device(self, target: ast.expr) -> bool:
        scope = self.script.scope_of(target)
        owner = scope.resolve(target.id) if isinstance(target, ast.Name) else None
        reads = (
            self.script.reads(target.id, owner) if isinstance(target, ast.Name) and owner is not None else ()
        )
        return any(self.script.is_a(one, v.DEVICE) for one in reads)

    def go_by_defaults(self) -> None:
        """Take the defaults of options for the choice, where nothing is seen to ask the options."""
        self.assignments += self._fields

    def _callees(self, assignment: DeviceAssignment) -> Set[Scope]:
        value = assignment.value
        return self.script.callees(value) if isinstance(value, ast.Call) else set()

    def _stated_callees(self, assignment: DeviceAssignment) -> Set[Scope]:
        value = assignment.value
        stated = isinstance(value, ast.Call) and self.decisions.stated.is_stated(value)
        return self._callees(assignment) if stated else set()

    def is_device_expression(self, node: ast.expr) -> bool:
        """Whether an expression chooses a device: a call of torch.device, or a name of one, in any branch."""
        if isinstance(node, ast.IfExp):
            arms = (node.body, node.orelse)
            if any(isinstance(arm, ast.Constant) and isinstance(arm.value, (int, float)) for arm in arms):
                return False
            return any(map(self.is_device_expression, arms))
        if isinstance(node, ast.BoolOp):
            *others, last = node.values
            if not self.is_device_expression(last) or isinstance(node.op, ast.And):
                return isinstance(node.op, ast.And) and self.is_device_expression(last)
            return all(
                self.is_device_expression(other)
                if isinstance(other, ast.BoolOp)
                else k.DEVICE_NAME.search(option_name(other) or "")
                for other in others
            )
        if isinstance(node, ast.Subscript) and (table := self.decisions.table(node.value)) is not None:
            entries = table.values if isinstance(table, ast.Dict) else table.elts
            return bool(entries) and all(map(self.is_device_expression, entries))
        if isinstance(node, ast.Constant):
            return self.script.is_a(node, v.DEVICE)
        if is_numbered_gpu(node):
            return True
        if isinstance(node, ast.Call):
            name = self.script.qualname(node.func)
            if name in k.DEVICE_CALLS:
                return True
            callees = self.script.callees(node)
            if not callees and isinstance(node.func, ast.Attribute):
                named = k.DEVICE_NAME.search(option_name(node) or "")
                return bool(named) and holds_options(self.script, node.func.value)
            return bool(callees) and self.script.is_a(node, v.DEVICE) and not self.script.is_a(node, v.MODEL)
        return False

    def _is_current(self, value: ast.expr, target: ast.Name | ast.Attribute) -> bool:
        """`self.device = torch.cuda.current_device()`: a number, which represents a device under such a name."""
        name = target.id if isinstance(target, ast.Name) else target.attr
        if not isinstance(value, ast.Call) or not k.DEVICE_NAME.search(name):
            return False
        return self.script.qualname(value.func) == "torch.cuda.current_device"

    def _is_recorded_place(self, target: ast.Attribute, value: ast.expr) -> bool:
        """Whether an attribute only records where something was put last: nothing is moved to it.

        `if self.place != place: net = move(net); self.place = place`, and `self.place = "cpu"` at first.
        """
        text = dotted(target)
        if not isinstance(value, ast.Constant) or text is None:
            return False
        reads = [
            n
            for n in self.tree.nodes(ast.Attribute)
            if n.attr == target.attr and isinstance(n.ctx, ast.Load) and dotted(n) == text
        ]
        stated = any(
            isinstance(s.value, ast.Name) and s.value.id in self.script.scope_of(s).positional()
            for s in self.tree.assigns(text)
        )
        return stated and bool(reads) and all(isinstance(self.tree.parent(n), ast.Compare) for n in reads)

    def _set_aside(self) -> None:
        """Keep apart the names for the CPU that are next to a choice: places to fetch to, and nobody's setting."""
        if all(a.cpu == "True" for a in self.assignments):
            return
        chosen = {self._variable(a) for a in self.assignments if a.cpu != "True"}
        for assignment in [a for a in self.assignments if a.cpu == "True"]:
            self.assignments.remove(assignment)
            parts = [] if self._variable(assignment) in chosen else self._made_with(assignment)
            if parts:
                self.parts.append((assignment, parts))
            if parts or self._variable(assignment) in chosen:
                self.assignments.append(assignment._replace(cpu=None, names=frozenset()))
            elif names_cpu(assignment.value):
                self.beside.append(assignment)
            else:
                self.assignments.append(assignment)

    def _made_with(self, assignment: DeviceAssignment) -> list[ast.Call]:
        """The models that get it for some of their parts: prepare moves a model as a whole."""
        target = assignment.target
        if not isinstance(target, ast.Name):
            return []
        variable = self._variable(assignment)
        return [
            call
            for call in self.script.calls()
            if any(
                isinstance(given, ast.Name)
                and given.id == target.id
                and (self.script.scope_of(given).resolve(given.id), given.id) == variable
                for given in [*call.args, *[kw.value for kw in call.keywords]]
            )
            and self.script.models_of(call)
            and not (isinstance(call.func, ast.Attribute) and call.func.attr == "to")  # `model.to(cpu)`
        ]

    def _variable(self, assignment: DeviceAssignment) -> tuple[object, str]:
        """What an assignment binds: its name, and the scope or class that it belongs to."""
        target = assignment.target
        scope = self.script.scope_of(assignment.statement)
        if isinstance(target, ast.Name):
            return scope.resolve(target.id), target.id
        return scope.owner_class, dotted(target) or ""

    def is_cpu(self, node: ast.expr) -> bool:
        """Whether an expression is the CPU as it is written, or by the assignment to its name."""
        if names_cpu(node) or not self.beside:
            return names_cpu(node)
        scope = self.script.scope_of(node)
        if isinstance(node, ast.Name):
            variable: tuple[object, str] = (scope.resolve(node.id), node.id)
        else:
            variable = (scope.owner_class, dotted(node) or "")
        return any(self._variable(a) == variable for a in self.beside)

    # -- conditions

    def _whole_choice(self, stmt: ast.stmt) -> ast.If | None:
        """The outermost `if`/`elif`/`else` around a device assignment that holds nothing else."""
        found: ast.If | None = None
        parent = self.tree.parent(stmt)
        while isinstance(parent, ast.If) and self._only_devices(parent):
            found = parent
            parent = self.tree.parent(parent)
        return found if found is not None and has_else(found) else None

    def _only_devices(self, node: ast.If) -> bool:
        def fits(stmt: ast.stmt) -> bool:
            if isinstance(stmt, ast.If):
                return self._only_devices(stmt)
            return (
                isinstance(stmt, ast.Assign)
                and self.is_device_expression(stmt.value)
                and len({dotted(t) for t in stmt.targets}) == 1
            )

        return all(fits(s) for s in [*node.body, *node.orelse])

    def _is_of_another_machine(self, stmt: ast.stmt) -> bool:
        """Whether it is on one branch of a test of the machine that takes another device than the CPU on the other.

        What is asked there, of an `mps` machine for example, is never asked on one with CUDA.
        """
        inner, outer = stmt, self.tree.parent(stmt)
        while isinstance(outer, ast.If) and outer is not self.script.main_guard:
            other = outer.orelse if inner in outer.body else outer.body
            if self.wish(outer.test) is None and any(
                isinstance(s, ast.Assign) and self.is_device_expression(s.value) and not names_cpu(s.value)
                for one in other
                for s in walk(one)
            ):
                return True
            inner, outer = outer, self.tree.parent(outer)
        return False

    def _is_constant_in_use(self, name: ast.Name | ast.Attribute) -> bool:
        """Whether a name holds that of a GPU, and is read for more than to make the device here."""
        owner = self.script.scope_of(name).resolve(name.id) if isinstance(name, ast.Name) else None
        if owner is None or not isinstance(name, ast.Name):
            return False
        given = [stmt.value for stmt in self.tree.assigns(name.id) if self.script.scope_of(stmt) is owner]
        fixed = len(given) == 1 and isinstance(given[0], ast.Constant) and self.is_device_expression(given[0])
        return fixed and not names_cpu(given[0]) and len(self.script.reads(name.id, owner)) > 1

    def _cpu(self, stmt: ast.stmt, target: ast.expr) -> tuple[str | None, frozenset[str]]:
        """Where the CPU is taken on a machine with a GPU, as text, and the names that are read; None for nowhere."""
        gpu = None if self._is_of_another_machine(stmt) else self.decisions.gpu(stmt, target)
        if isinstance(gpu, Setting):
            return gpu.opposite, gpu.names
        return ("True" if gpu is False else None), frozenset()

    def wish(self, test: ast.expr, seen: frozenset[str] = frozenset()) -> tuple[str, frozenset[str]] | None:
        """The part of a test that is the user's setting: its text and names. None where it only asks the machine."""
        if isinstance(test, ast.BoolOp):
            wishes = [self.wish(value, seen) for value in test.values]
            retained = [p for p in wishes if p is not None]
            if isinstance(test.op, ast.Or) and len(retained) < len(wishes):
                return None
            if not retained:
                return None
            joiner = " and " if isinstance(test.op, ast.And) else " or "
            return joiner.join(p[0] for p in retained), frozenset(n for p in retained for n in p[1])
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            if isinstance(test.operand, ast.BoolOp) and isinstance(test.operand.op, ast.Or):
                # `"cpu" if not torch.cuda.is_available() or args.no_cuda`: what the machine lacks is no setting.
                parts = [ast.UnaryOp(ast.Not(), value) for value in test.operand.values]
                return self.wish(ast.BoolOp(ast.And(), list[ast.expr](parts)), seen)
            inner = self.wish(test.operand, seen)
            return None if inner is None else (negated(inner[0]), inner[1])
        if isinstance(test, ast.Call):
            name = self.script.qualname(test.func) or dotted(test.func)
            if name in k.AVAILABILITY_CALLS or (name or "").endswith("is_available"):
                return None
        if isinstance(test, ast.Compare) and isinstance(test.left, ast.Call):
            if self.script.qualname(test.left.func) == "torch.cuda.device_count":
                return None
        if isinstance(test, ast.Compare) and isinstance(test.left, (ast.Name, ast.Attribute)):
            counted = self._only_assignment(test.left)
            if isinstance(counted, ast.Call):
                return None  # `n_gpu = torch.cuda.device_count()`
        if isinstance(test, (ast.Name, ast.Attribute)):
            text = dotted(test) or ""
            assigned = self._only_assignment(test)
            # A flag that is computed from itself (`args.cuda = args.cuda and ...`) is still what the command line set.
            if assigned is not None and text not in seen:
                if compares_to(assigned, text):
                    # `args.cuda = args.cuda == "yes"`: a text before, a flag from there on.
                    return text, self._read_by(test)
                return self.wish(assigned, seen | {text})
            if self._machine_flags.holds(test):
                return None
            if isinstance(test, ast.Name) and self._is_handed_no_wish(test, seen):
                return None
        if isinstance(test, ast.Attribute) and test.attr == "is_cuda":
            return None  # where a tensor is, and nobody's setting
        if isinstance(test, ast.Constant):
            return None if test.value is True else ("False", frozenset()) if test.value is False else None
        if self.tree.in_fstring(test) or not hasattr(test, "lineno"):
            return None
        return self.decisions.text(test), self._read_by(test)

    def stated(self, test: ast.expr) -> str | None:
        """The user's setting that a test asks for and for nothing else: `args.gpu` of `self.gpu`, which is no more."""
        asked: set[str | None] = set()
        while isinstance(test, (ast.Name, ast.Attribute)) and dotted(test) not in asked:
            asked.add(dotted(test))
            assigned = self._only_assignment(test)
            if assigned is None:
                return self.tree.segment(test)
            test = assigned
        return None

    def _is_handed_no_wish(self, name: ast.Name, seen: frozenset[str]) -> bool:
        """Whether a name is a parameter, and all calls of its function pass it what only asks the machine."""
        scope = self.script.scope_of(name).resolve(name.id)
        if scope is None or scope.kind != "function" or is_stored(scope, name.id):
            return False
        calls = self.script.callers(scope) if name.id in defaults_of(scope) else []
        asked = f"{scope.name}({name.id})"  # a recursive function is looked at once
        if not calls or asked in seen or self.script.called_from_elsewhere(scope):
            return False
        for call in calls:
            if hides_arguments(call):
                return False
            given = defaults_of(scope) | {
                parameter: argument for argument, parameter in handed_to(call, scope)
            }
            value = given.get(name.id)
            if value is None or self.wish(value, seen | {asked}) is not None:
                return False
        return True

    @cached_property
    def _machine_flags(self) -> MachineFlags:
        return MachineFlags(self.script)

    def asks_for_gpu(self, test: ast.expr) -> bool:
        """Whether a test asks for nothing but a GPU: of the machine, or of an option by the name of that.

        `args.no_cuda`, `not config["cpu"]`, `num_gpu > 0`, `config.get("gpu") and torch.cuda.is_available()`.
        """
        if isinstance(test, ast.BoolOp):
            return all(map(self.asks_for_gpu, test.values))
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            return self.asks_for_gpu(test.operand)
        if isinstance(test, ast.Compare):
            return self._asks_for_number(test) or is_option_for_gpu(test)
        name = option_name(test) or ""
        asked = any(r.search(name) for r in (k.FLAG_NAME, k.NO_FLAG_NAME, k.GPU_NUMBER_NAME))
        return asked or self.script.is_a(test, v.FLAG)

    def _asks_for_number(self, test: ast.Compare) -> bool:
        """`num_gpu > 0`, `args.gpu >= 0`, `len(opt.gpu_ids) > 0`, and the same of what the machine has."""
        number, sign, least = test.left, test.ops[0], test.comparators[0]
        if isinstance(number, ast.Call) and dotted(number.func) == "len" and number.args:
            number = number.args[0]
        if isinstance(number, ast.Call) and self.script.qualname(number.func) == "torch.cuda.device_count":
            number = ast.Name("gpus")
        if len(test.ops) != 1 or not k.GPU_NUMBER_NAME.search(option_name(number) or ""):
            return False
        try:
            limit = ast.literal_eval(least)
        except ValueError:
            return False
        known = {
            ast.Gt: (0, -1),
            ast.GtE: (0, 1),
            ast.NotEq: (0, -1),
            ast.Lt: (0, 1),
            ast.LtE: (0, -1),
            ast.Eq: (0, -1),
        }
        return isinstance(limit, int) and limit in known.get(type(sign), ())

    def _read_by(self, test: ast.expr) -> frozenset[str]:
        """Names an expression reads; attributes of `self` as `self.name`, which have to be assigned before it."""
        names = set(names_in(test))
        own = self.script.scope_of(test).self_name()
        for node in walk(test):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == own:
                names.add(f"{own}.{node.attr}")
        return frozenset(names)

    def _only_assignment(self, name: ast.Name | ast.Attribute) -> ast.expr | None:
        """What a flag was assigned, when it was assigned once, from an expression over flags.

        Several classes that store a flag under one name test the machine in the same way: `self.gpu = is_available()`.
        """
        text = dotted(name) or ""
        owner = self.script.scope_of(name).resolve(name.id) if isinstance(name, ast.Name) else None
        found = [
            stmt.value
            for stmt in self.tree.assigns(text)
            if owner is None or self.script.scope_of(stmt).resolve(text) is owner
        ]
        if len({ast.dump(value) for value in found}) != 1:
            return None
        value: ast.expr = found[0]
        plain = (ast.BoolOp, ast.UnaryOp, ast.Call, ast.Attribute, ast.Name, ast.Compare)
        if isinstance(value, ast.Call) and self.script.qualname(value.func) not in k.AVAILABILITY_CALLS:
            return None
        if isinstance(value, ast.IfExp) and isinstance(value.body, ast.Constant) and value.body.value is True:
            return value.test
        if not isinstance(value, plain):
            return None
        return value
