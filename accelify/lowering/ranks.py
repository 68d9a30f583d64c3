"""Which expressions of a script hold the rank of the process, its rank on the machine, or the number of processes."""

from __future__ import annotations

import ast
import re

from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import Node, Tree, call_argument, dotted, is_constant, walk

RANK, LOCAL, WORLD = "rank", "local rank", "world size"
# Whether it is the main process, or the main one of its machine.
MAIN, LOCAL_MAIN = "main", "local main"
ATTRIBUTES = {RANK: "process_index", LOCAL: "local_process_index", WORLD: "num_processes"}
TESTS = {MAIN: "is_main_process", LOCAL_MAIN: "is_local_main_process"}

_VARIABLES = {
    "RANK": RANK,
    "SLURM_PROCID": RANK,
    "OMPI_COMM_WORLD_RANK": RANK,
    "LOCAL_RANK": LOCAL,
    "SLURM_LOCALID": LOCAL,
    "OMPI_COMM_WORLD_LOCAL_RANK": LOCAL,
    "WORLD_SIZE": WORLD,
    "SLURM_NTASKS": WORLD,
    "SLURM_NPROCS": WORLD,
    "OMPI_COMM_WORLD_SIZE": WORLD,
}
# What a launcher sets, which a script must not set over.
LAUNCHER_VARIABLES = frozenset({*_VARIABLES, "MASTER_ADDR", "MASTER_PORT", "LOCAL_WORLD_SIZE"})
CALLS = {"torch.distributed.get_rank": RANK, "torch.distributed.get_world_size": WORLD}
SPAWN = "torch.multiprocessing.spawn"
_LOCAL_NAME = re.compile(r"^(local_?rank|gpu|gpu_?id|device_?id|dev_?id|device)$", re.I)
_MOST_ROUNDS = 8


class Ranks:
    """Follows ranks through assignments, attributes, parameters and returns."""

    def __init__(self, script: ScriptModel) -> None:
        self.script = script
        self.tree = script.tree
        self.names: dict[tuple[Scope, str], str] = {}
        self.attributes: dict[str, str] = {}
        self.returns: dict[Scope, str] = {}
        self.arguments = self._command_line()
        self.attributes.update(dict.fromkeys(self.arguments, LOCAL))
        for call in script.calls():
            if script.qualname(call.func) == SPAWN:
                self._spawned(call)
        for _ in range(_MOST_ROUNDS):
            before = (len(self.names), len(self.attributes), len(self.returns))
            self._round()
            if before == (len(self.names), len(self.attributes), len(self.returns)):
                break

    def _command_line(self) -> set[str]:
        """`local_rank` where the command line takes it, as torch's old launcher passes it."""
        for call in self.script.calls():
            if isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument":
                if any(is_constant(a, "--local_rank", "--local-rank") for a in call.args):
                    return {"local_rank"}
        return set()

    def worker(self, call: ast.Call) -> Scope | None:
        """The function that `mp.spawn` starts."""
        target = call_argument(call, 0, "fn")
        if not isinstance(target, ast.Name):
            return None
        owner = self.script.scope_of(call).resolve(target.id)
        for scope in self.script.functions():
            if (
                isinstance(scope.node, ast.FunctionDef)
                and scope.node.name == target.id
                and scope.parent is owner
            ):
                return scope
        return None

    def _spawned(self, call: ast.Call) -> None:
        scope = self.worker(call)
        if scope is None or not scope.positional():
            return
        names = scope.positional()
        self.names[(scope, names[0])] = LOCAL if _LOCAL_NAME.match(names[0]) else RANK
        given, count = call_argument(call, 1, "args"), call_argument(call, 2, "nprocs")
        if isinstance(given, (ast.Tuple, ast.List)) and isinstance(count, (ast.Name, ast.Attribute)):
            for name, value in zip(names[1:], given.elts, strict=False):
                if dotted(value) == dotted(count):
                    self.names[(scope, name)] = WORLD

    def _round(self) -> None:
        for stmt in [*self.tree.nodes(ast.Assign), *self.tree.nodes(ast.AnnAssign)]:
            kind = self.kind(stmt.value) if stmt.value is not None else None
            for target in stmt.targets if isinstance(stmt, ast.Assign) else [stmt.target]:
                if isinstance(target, ast.Tuple) and isinstance(stmt.value, ast.Tuple):
                    for element, value in zip(target.elts, stmt.value.elts, strict=False):
                        self._bind(element, self.kind(value))
                else:
                    self._bind(target, kind)
        for scope in self.script.functions():
            self._parameters(scope)
            for node in scope.nodes:
                if isinstance(node, ast.Return) and node.value is not None:
                    kind = self.kind(node.value)
                    if kind is not None:
                        self.returns.setdefault(scope, kind)

    def _bind(self, target: ast.expr, kind: str | None) -> None:
        if kind is None:
            return
        if isinstance(target, ast.Name):
            scope = self.script.scope_of(target)
            self.names.setdefault((scope.resolve(target.id) or scope, target.id), kind)
        elif isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
            self.attributes.setdefault(target.attr, kind)

    def _parameters(self, scope: Scope) -> None:
        names = scope.positional()[1 if scope.self_name() is not None else 0 :]
        for call in self.script.callers(scope):
            for index, name in enumerate(names):
                given = call_argument(call, index, name)
                kind = self.kind(given) if given is not None else None
                if kind is not None:
                    self.names.setdefault((scope, name), kind)

    # -- asking

    def kind(self, node: ast.expr) -> str | None:
        """What an expression holds; None for anything else."""
        if isinstance(node, ast.Name):
            owner = self.script.scope_of(node).resolve(node.id)
            return self.names.get((owner, node.id)) if owner is not None else None
        if isinstance(node, ast.Attribute):
            return self.attributes.get(node.attr)
        if isinstance(node, ast.Subscript):
            return self._variable(node.value, node.slice)
        if isinstance(node, ast.Call):
            return self._of_call(node)
        if isinstance(node, ast.IfExp):
            return self.kind(node.body) or self.kind(node.orelse)
        if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or):
            return next((kind for value in node.values if (kind := self.kind(value)) in ATTRIBUTES), None)
        if isinstance(node, ast.BinOp):
            if isinstance(node.op, ast.Mod) and self.kind(node.left) == RANK:
                return LOCAL
            # `args.rank * gpus_per_node + gpu`
            if isinstance(node.op, ast.Add) and LOCAL in (self.kind(node.left), self.kind(node.right)):
                return RANK if isinstance(node.left, ast.BinOp) or isinstance(node.right, ast.BinOp) else None
            return None
        if isinstance(node, (ast.Compare, ast.UnaryOp)):
            test = self.main_test(node)
            return test[0] if test is not None and not test[1] else None
        return None

    def main_test(self, node: ast.expr) -> tuple[str, bool] | None:
        """Whether an expression is a test for the main process: for which kind, and whether it is negated."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            kind = self.kind(node.operand)
            return _main_of(kind, False) if kind in (RANK, LOCAL) else None
        if isinstance(node, (ast.Name, ast.Attribute, ast.Call)):
            kind = self.kind(node)
            return (kind, False) if kind in (MAIN, LOCAL_MAIN) else None
        if not isinstance(node, ast.Compare) or len(node.ops) != 1:
            return None
        left, op, right = node.left, node.ops[0], node.comparators[0]
        if isinstance(left, ast.Constant):
            left, right = right, left
        kind = self.kind(left)
        if kind not in (RANK, LOCAL):
            return None
        if is_constant(right, 0) and isinstance(op, (ast.Eq, ast.NotEq, ast.LtE, ast.Gt)):
            return _main_of(kind, isinstance(op, (ast.NotEq, ast.Gt)))
        zeros = isinstance(right, (ast.List, ast.Tuple, ast.Set)) and {
            ast.unparse(e) for e in right.elts
        } <= {"-1", "0"}
        if zeros and isinstance(op, (ast.In, ast.NotIn)) and "0" in {ast.unparse(e) for e in right.elts}:  # type: ignore[attr-defined]
            return _main_of(kind, isinstance(op, ast.NotIn))
        return None

    def _of_call(self, call: ast.Call) -> str | None:
        name = self.script.qualname(call.func) or ""
        if name in CALLS:
            return CALLS[name]
        if name in ("builtins.int", "builtins.str") and len(call.args) == 1:
            return self.kind(call.args[0])
        if name in ("os.environ.get", "os.getenv") and call.args:
            return self._named(call.args[0])
        if isinstance(call.func, ast.Attribute) and call.func.attr == "get" and call.args:
            return self._variable(call.func.value, call.args[0])
        for scope in self.script.callees(call):
            if scope in self.returns:
                return self.returns[scope]
        return None

    def _variable(self, holder: ast.expr, key: ast.expr) -> str | None:
        return self._named(key) if is_environment(self.script, holder) else None

    def _named(self, key: ast.expr) -> str | None:
        return _VARIABLES.get(str(key.value)) if isinstance(key, ast.Constant) else None

    def holds(self, node: Node, *kinds: str) -> bool:
        """Whether a rank (of some kinds) is anywhere in a node."""
        wanted = kinds or (RANK, LOCAL)
        return any(isinstance(n, ast.expr) and self.kind(n) in wanted for n in walk(node))

    def has_default(self, node: ast.expr) -> bool:
        """Whether a script itself sets a rank without a launcher: it works as it is, with any launcher."""
        calls = [n for n in walk(node) if isinstance(n, ast.Call)]
        return any(
            len(c.args) + len(c.keywords) > 1
            for c in calls
            if (self.script.qualname(c.func) or "") == "os.getenv" or dotted(c.func) == "os.environ.get"
        )

    def is_source(self, node: ast.expr) -> bool:
        """Whether a rank is read here, and not only passed on."""
        if isinstance(node, ast.Call):
            name = self.script.qualname(node.func) or ""
            if name in CALLS or name in ("os.environ.get", "os.getenv"):
                return self.kind(node) is not None
            if name == "builtins.int" and len(node.args) == 1:
                return self.is_source(node.args[0])
            return (
                isinstance(node.func, ast.Attribute)
                and node.func.attr == "get"
                and self.kind(node) is not None
            )
        return isinstance(node, ast.Subscript) and self.kind(node) is not None


def _main_of(kind: str, negated: bool) -> tuple[str, bool]:
    return (MAIN if kind == RANK else LOCAL_MAIN), negated


def is_environment(script: ScriptModel, node: ast.expr) -> bool:
    """Whether an expression is `os.environ`."""
    return (script.qualname(node) or "") == "os.environ"


def name_of_gpu(tree: Tree, rank: ast.AST) -> ast.expr | None:
    """`f"cuda:{os.environ['LOCAL_RANK']}"`, `"cuda:" + os.environ["LOCAL_RANK"]` around a rank."""
    around = tree.parent(rank)
    if isinstance(around, ast.Call) and around.args == [rank] and dotted(around.func) == "str":
        around = tree.parent(around)
    if isinstance(around, ast.BinOp) and isinstance(around.op, ast.Add) and is_constant(around.left, "cuda:"):
        return around
    whole = tree.parent(around) if isinstance(around, ast.FormattedValue) else None
    if isinstance(whole, ast.JoinedStr) and len(whole.values) == 2 and is_constant(whole.values[0], "cuda:"):
        return whole
    return None
