"""Hand-written torch DistributedDataParallel, taken out: what is left is the script for one device.

Calls of torch.distributed become attributes of the Accelerator. Code that is not understood is a problem that names
its line, and the script then stays as it is.
"""

from __future__ import annotations

import ast

from accelify.analysis import knowledge as k
from accelify.analysis import values as v
from accelify.analysis.distributed import distributing
from accelify.analysis.lowered import PLACEHOLDER, MainTest
from accelify.analysis.syntax import call_argument, dotted, is_constant, walk
from accelify.lowering.ranks import (
    ATTRIBUTES,
    CALLS,
    LAUNCHER_VARIABLES,
    LOCAL,
    LOCAL_MAIN,
    MAIN,
    RANK,
    SPAWN,
    TESTS,
    WORLD,
    Ranks,
    is_environment,
    name_of_gpu,
)
from accelify.lowering.samplers import Samplers
from accelify.lowering.work import Work
from accelify.lowering.wrappers import Wrappers
from accelify.transforms.replace_ddp import REPLACE as RULE
from accelify.writer import edits as verbs

_DISTRIBUTED = "torch.distributed."
_CHECKS = frozenset({"torch.distributed.is_initialized", "torch.distributed.is_available"})
_GOES = frozenset({"torch.distributed.init_process_group", "torch.distributed.destroy_process_group"})
# Collectives that combine the metrics of a script.
_COLLECTIVES = frozenset(
    "all_reduce reduce all_gather all_gather_object all_gather_into_tensor gather gather_object "
    "all_gather_single reduce_scatter reduce_scatter_tensor reduce_scatter_single".split()
)
_MOVES_DATA = _COLLECTIVES | frozenset(
    "broadcast broadcast_object_list scatter scatter_object_list send recv isend irecv all_to_all "
    "all_to_all_single monitored_barrier new_group".split()
)


def lower_ddp(work: Work) -> None:
    """Take DistributedDataParallel and what is around it out of a script."""
    script = work.script
    if not any(
        value.name in k.REPLACEABLE or value.name.startswith(_DISTRIBUTED)
        for node in [*script.tree.nodes(ast.Name), *script.tree.nodes(ast.Attribute)]
        for value in (script.values(node) if isinstance(node.ctx, ast.Load) else ())
        if isinstance(value, v.Imported)
    ):
        return
    _Lowering(work).run()


class _Lowering:
    def __init__(self, work: Work) -> None:
        self.work = work
        self.script = work.script
        self.tree = work.tree
        self.ranks = Ranks(work.script)
        # A script that counts machines too: what it spawns are the processes of one machine.
        self.nodes = any(self._is_global_rank(s) for s in self.tree.nodes(ast.Assign))
        self.counts: set[str] = set()

    def run(self) -> None:
        work = self.work
        work.known.distributed = True
        wrappers = Wrappers(work, RULE)
        self._elsewhere()
        calls = self.tree.in_order(self.script.calls())
        for call in calls:
            name = self.script.qualname(call.func) or ""
            if name in k.DDP_WRAPPERS:
                wrappers.lower(call)
            elif name in k.PARALLEL_WRAPPERS:
                wrappers.lower_data_parallel(call)
            elif name in _GOES:
                self._goes(call, "the Accelerator makes the process group and leaves it")
                self._counted_processes(call)
            elif name == "torch.cuda.set_device":
                self._goes(call, "the Accelerator selects the GPU of each process")
            elif name == SPAWN:
                self._spawn(call)
            elif name == "torch.multiprocessing.Process":
                work.problem(
                    call, f"line {call.lineno} starts processes by itself, which the launcher would do"
                )
            elif name.startswith(_DISTRIBUTED):
                self._collective(call, name.removeprefix(_DISTRIBUTED))
            elif self._sets_environment(call):
                self._goes(call, "the launcher sets this")
            elif isinstance(call.func, ast.Attribute) and call.func.attr == "no_sync":
                if not call.args and self.script.models_of(call.func.value):
                    work.replace(call, f"{PLACEHOLDER}.no_sync({self.tree.segment(call.func.value)})")
            else:
                self._device(call)
        wrappers.find_unread()
        self._environment()
        Samplers(work, RULE).lower()
        self._sources()
        self._main_tests()
        self._command_line()
        self._unread_counts()
        self._unclear_loaders()

    # -- what is elsewhere

    def _elsewhere(self) -> None:
        """A helper of another file that makes the process group cannot be taken out from here."""
        words = ("init_process_group", "DistributedDataParallel(", "DDP(", "DistributedSampler(")
        for call in self.script.interpreter.calls:
            found = distributing(self.script, call, words) if self.tree.parent(call) is not None else None
            if found is not None:
                home, word = found
                self.work.problem(
                    call,
                    f"`{self.tree.segment(call.func)}` in line {call.lineno} distributes the script from "
                    f"`{home.name}` (it calls {word.rstrip('(')}); move that into this file",
                )
                return

    # -- processes

    def _goes(self, call: ast.Call, message: str) -> None:
        stmt = self.tree.parent(call)
        if not isinstance(stmt, ast.Expr):
            self.work.problem(call, f"line {call.lineno} uses what `{dotted(call.func)}` gives back")
            return
        self.work.delete(stmt)
        self.work.found(RULE, call, message)

    def _sets_environment(self, call: ast.Call) -> bool:
        return (
            isinstance(call.func, ast.Attribute)
            and call.func.attr == "setdefault"
            and is_environment(self.script, call.func.value)
            and bool(call.args)
            and is_constant(call.args[0], *LAUNCHER_VARIABLES)
        )

    def _environment(self) -> None:
        """Assignments of the script to the launcher's variables would lead it away from the launcher."""
        for stmt in self.tree.nodes(ast.Assign):
            target = stmt.targets[0]
            if (
                isinstance(target, ast.Subscript)
                and is_environment(self.script, target.value)
                and is_constant(target.slice, *LAUNCHER_VARIABLES)
            ):
                self.work.delete(stmt)
                self.work.found(RULE, stmt, "the launcher sets this")

    def _spawn(self, call: ast.Call) -> None:
        """`mp.spawn(worker, args=(...), nprocs=n)` becomes one call: the launcher starts the processes."""
        work, tree = self.work, self.tree
        scope, given = self.ranks.worker(call), call_argument(call, 1, "args")
        count = call_argument(call, 2, "nprocs")
        if not isinstance(tree.parent(call), ast.Expr) or scope is None:
            work.problem(call, f"line {call.lineno} starts processes of a function that cannot be seen")
            return
        if given is None:
            values: list[ast.expr] = []
        elif isinstance(given, (ast.Tuple, ast.List)) and not any(
            isinstance(e, ast.Starred) for e in given.elts
        ):
            values = given.elts
        else:
            work.problem(call, f"line {call.lineno} starts processes with arguments that cannot be seen")
            return
        first = scope.positional()[:1]
        if not first:
            work.problem(call, f"line {call.lineno} starts processes of a function that takes no rank")
            return
        kind = self.ranks.names.get((scope, first[0]), RANK)
        texts = [f"{PLACEHOLDER}.{ATTRIBUTES[kind]}"]
        for value in values:
            same = count is not None and dotted(value) == dotted(count) is not None and not self.nodes
            texts.append(f"{PLACEHOLDER}.{ATTRIBUTES[WORLD]}" if same else tree.segment(value))
        target = call_argument(call, 0, "fn")
        work.replace(call, f"{tree.segment(target)}({', '.join(texts)})")
        if count is not None and dotted(count) is not None and not self.nodes:
            self.counts.add(str(dotted(count)))
        work.found(RULE, call, "the launcher starts the processes")

    def _counted_processes(self, call: ast.Call) -> None:
        """`args.world_size = args.gpus * args.nodes`, with which the group was made: what the launcher has started."""
        given = call_argument(call, 3, "world_size")
        name = (dotted(given) or "").rpartition(".")[2] if given is not None else ""
        for stmt in self.tree.nodes(ast.Assign) if name else ():
            product = stmt.value
            if not isinstance(product, ast.BinOp) or not isinstance(product.op, ast.Mult):
                continue
            if len(stmt.targets) > 1 or (dotted(stmt.targets[0]) or "").rpartition(".")[2] != name:
                continue
            read = (n for n in walk(product) if isinstance(n, (ast.Name, ast.Attribute)))
            if any((dotted(n) or "").rpartition(".")[2] == name for n in read):
                continue  # `args.world_size = gpus * args.world_size`, of which the script asks for machines
            self.work.placeholder(product, ATTRIBUTES[WORLD])
            self.work.found(RULE, stmt, "the launcher says how many processes there are")

    def _unread_counts(self) -> None:
        """`world_size = torch.cuda.device_count()`, of which nobody reads any more, or which is the launcher's."""
        for stmt in self.tree.nodes(ast.Assign):
            target = stmt.targets[0]
            contained = dotted(target)
            if contained in self.counts and isinstance(stmt.value, ast.Call):
                if self.script.qualname(stmt.value.func) == "torch.cuda.device_count":
                    others = [
                        n
                        for n in self.tree.nodes(ast.Attribute, ast.Name)
                        if isinstance(n.ctx, ast.Load)
                        and (dotted(n) or "").rsplit(".", 1)[-1] == contained.rsplit(".", 1)[-1]
                    ]
                    if self.work.left(others):
                        self.work.placeholder(stmt.value, ATTRIBUTES[WORLD])
                        continue
            if not isinstance(target, ast.Name) or len(stmt.targets) > 1:
                continue
            value = stmt.value
            counted = (
                isinstance(value, ast.Call) and self.script.qualname(value.func) == "torch.cuda.device_count"
            )
            owner = self.script.scope_of(stmt).resolve(target.id)
            reads = self.script.reads(target.id, owner) if owner is not None else []
            if (counted or self.ranks.kind(target) is not None) and reads:
                if not self.work.left(reads):
                    self.work.delete(stmt)

    # -- asking and collecting

    def _is_checked(self, node: ast.AST, by_size: bool = False) -> bool:
        """Whether a function asks by itself whether there is a process group: it works as it is.

        `by_size`: asking whether there are several processes is enough.
        """
        child = node
        for ancestor in self.tree.ancestors(node):
            if isinstance(ancestor, (ast.If, ast.IfExp)) and child is not ancestor.test:
                if self._asks(ancestor.test, by_size):
                    return True
            if isinstance(ancestor, (ast.FunctionDef, ast.AsyncFunctionDef)):
                # `if not is_initialized(): return` before it
                return any(
                    isinstance(s, ast.If)
                    and isinstance(s.body[-1], ast.Return)
                    and self.tree.is_after(node, s)
                    and self._asks(s.test, by_size)
                    for s in ancestor.body
                )
            child = ancestor
        return False

    def _asks(self, test: ast.expr, by_size: bool) -> bool:
        for node in walk(test):
            if isinstance(node, ast.Call):
                if self.script.qualname(node.func) in _CHECKS:
                    return True
                for scope in self.script.callees(node):
                    inner = [n for n in walk(scope.node) if isinstance(n, ast.Call)]
                    if len(inner) <= 3 and any(self.script.qualname(c.func) in _CHECKS for c in inner):
                        return True
            elif by_size and isinstance(node, ast.Compare) and self.ranks.kind(node.left) == WORLD:
                return True
        return False

    def _collective(self, call: ast.Call, name: str) -> None:
        work = self.work
        stmt = self.tree.parent(call)
        if name in _COLLECTIVES:
            work.known.reduces = True
        if name in _MOVES_DATA and any(
            isinstance(n, ast.Attribute) and n.attr == "grad" for a in call.args for n in walk(a)
        ):
            work.problem(
                call, f"line {call.lineno} reduces gradients by hand, which prepare would do once more"
            )
        elif name in _MOVES_DATA | {"barrier"} and self._is_checked(call, by_size=name != "barrier"):
            pass
        elif name == "barrier":
            work.placeholder(call, "wait_for_everyone()")
            work.found(RULE, call, "the Accelerator waits, on any number of processes")
        elif name == "all_reduce" and isinstance(stmt, ast.Expr):
            self._all_reduce(call, stmt)
        elif name in _MOVES_DATA:
            work.problem(
                call,
                f"line {call.lineno} calls `{dotted(call.func)}` without asking whether there are several processes",
            )
        elif name.split(".")[0] in ("fsdp", "tensor", "rpc", "pipeline", "pipelining", "algorithms", "optim"):
            work.problem(call, f"line {call.lineno} uses {_DISTRIBUTED}{name.split('.')[0]}")

    def _all_reduce(self, call: ast.Call, stmt: ast.Expr) -> None:
        """`dist.all_reduce(t)` becomes `t = accelerator.reduce(t)`, which works on one process too."""
        work, tree = self.work, self.tree
        tensor, op = call_argument(call, 0, "tensor"), call_argument(call, 1, "op")
        name = (dotted(op) or "SUM").rsplit(".", 1)[-1] if op is not None else "SUM"
        others = [
            kw.arg
            for kw in call.keywords
            if kw.arg not in ("tensor", "op") and not (kw.arg == "async_op" and is_constant(kw.value, False))
        ]
        if tensor is None or name not in ("SUM", "AVG") or others:
            work.problem(call, f"line {call.lineno} reduces in a way that the Accelerator does not")
            return
        text = tree.segment(tensor)
        reduced = f'{PLACEHOLDER}.reduce({text}, reduction="{"sum" if name == "SUM" else "mean"}")'
        if isinstance(tensor, ast.Name) and self._is_own(tensor):
            work.replace(stmt, f"{text} = {reduced}")
        elif isinstance(tensor, (ast.Name, ast.Attribute, ast.Subscript)):
            work.replace(stmt, f"{text}.copy_({reduced})")
        else:
            work.problem(call, f"line {call.lineno} reduces in a way that the Accelerator does not")
            return
        work.found(RULE, call, "the Accelerator reduces, on any number of processes")

    def _is_own(self, name: ast.Name) -> bool:
        """Whether a name is assigned a new tensor here, to which nobody else refers."""
        scope = self.script.scope_of(name)
        owner = scope.resolve(name.id)
        if owner is not scope or scope.takes(name.id):
            return False
        values = [
            s.value
            for s in self.tree.nodes(ast.Assign)
            if any(isinstance(t, ast.Name) and t.id == name.id for t in s.targets)
            and self.script.scope_of(s) is scope
        ]
        return bool(values) and all(isinstance(w, ast.Call) for w in values)

    def _sources(self) -> None:
        """`dist.get_rank()`, `int(os.environ["LOCAL_RANK"])` become the Accelerator's."""
        work, ranks = self.work, self.ranks
        taken: set[ast.AST] = set()
        for node in self.tree.in_order([*self.tree.nodes(ast.Call), *self.tree.nodes(ast.Subscript)]):
            if isinstance(getattr(node, "ctx", ast.Load()), ast.Store) or any(
                a in taken for a in self.tree.ancestors(node)
            ):
                continue
            if not ranks.is_source(node) or ranks.has_default(node):
                continue
            name = self.script.qualname(node.func) if isinstance(node, ast.Call) else None
            if name in CALLS and self._is_checked(node):
                continue
            kind = ranks.kind(node)
            gpu = name_of_gpu(self.tree, node)
            text = '"cuda"' if gpu is not None else f"{PLACEHOLDER}.{ATTRIBUTES[str(kind)]}"
            is_text = not (name in CALLS or name == "builtins.int")
            if (
                is_text
                and isinstance(self.tree.parent(node), ast.Compare)
                and not any(
                    isinstance(c, ast.Constant) and isinstance(c.value, int)
                    for c in walk(self.tree.parent(node))  # type: ignore[arg-type]
                )
            ):
                text = f"str({text})"
            if any(
                isinstance(a, (ast.Assign, ast.AnnAssign)) and self._is_global_rank(a)
                for a in self.tree.ancestors(node)
            ):
                continue
            taken.add(node)
            work.replace(gpu or node, text)
            work.found(RULE, node, f"the Accelerator knows the {kind}")
        for stmt in self.tree.nodes(ast.Assign):
            if self._is_global_rank(stmt):
                work.placeholder(stmt.value, ATTRIBUTES[RANK])
                work.found(RULE, stmt.value, "the Accelerator knows the rank")

    def _is_global_rank(self, stmt: ast.stmt) -> bool:
        """`rank = node_rank * gpus + gpu`, as a whole."""
        return (
            isinstance(stmt, ast.Assign)
            and isinstance(stmt.value, ast.BinOp)
            and isinstance(stmt.value.op, ast.Add)
            and self.ranks.kind(stmt.value) == RANK
        )

    def _main_tests(self) -> None:
        work = self.work
        for node in self.tree.nodes(ast.Compare, ast.UnaryOp, ast.Name, ast.Attribute, ast.Call):
            if isinstance(getattr(node, "ctx", ast.Load()), ast.Store) or self.tree.in_fstring(node):
                continue
            test = self.ranks.main_test(node)
            if test is not None and self._is_condition(node):
                attribute = TESTS[MAIN if test[0] == MAIN else LOCAL_MAIN]
                work.mains.append((node, MainTest(0, 0, attribute, test[1])))

    def _is_condition(self, node: ast.expr) -> bool:
        child: ast.AST = node
        for ancestor in self.tree.ancestors(node):
            if isinstance(ancestor, (ast.If, ast.IfExp)):
                return child is ancestor.test
            if not isinstance(ancestor, (ast.BoolOp, ast.UnaryOp)):
                return isinstance(ancestor, ast.Assign) and isinstance(node, ast.Compare)
            child = ancestor
        return False

    def _command_line(self) -> None:
        """`args.local_rank` of torch's old launcher is set after the command line is parsed, once."""
        reads = [
            n
            for n in self.tree.nodes(ast.Attribute)
            if n.attr in self.ranks.arguments and isinstance(n.ctx, ast.Load)
        ]
        stores = [
            n
            for n in self.tree.nodes(ast.Attribute)
            if n.attr in self.ranks.arguments and isinstance(n.ctx, ast.Store)
        ]
        left = self.work.left(reads)
        if not left or any(self._is_plain_store(s) for s in stores):
            return
        for node in left:
            assert isinstance(node, ast.Attribute)
            self.work.placeholder(node, ATTRIBUTES[LOCAL])
        self.work.found(RULE, left[0], "the Accelerator knows the local rank")

    def _is_plain_store(self, node: ast.Attribute) -> bool:
        stmt = self.tree.statement(node)
        return isinstance(stmt, ast.Assign) and self.ranks.is_source(stmt.value)

    # -- devices

    def _device(self, call: ast.Call) -> None:
        """`x.to(rank)`, `torch.device("cuda", rank)`: the process's device."""
        work, tree, ranks = self.work, self.tree, self.ranks
        name = self.script.qualname(call.func) or ""
        if name == "torch.device" and any(
            ranks.holds(a) for a in [*call.args, *[kw.value for kw in call.keywords]]
        ):
            work.replace(call, 'torch.device("cuda")')
            return
        for keyword in call.keywords:
            if (keyword.arg == "device" and self._is_device(keyword.value)) or (
                keyword.arg == "map_location" and self._is_device(keyword.value)
            ):
                work.replace(keyword.value, '"cuda"')
        func = call.func
        if (
            isinstance(func, ast.Attribute)
            and func.attr == "to"
            and call.args
            and self._is_device(call.args[0])
        ):
            rest = [tree.segment(n) for n in [*call.args[1:], *call.keywords]]
            if call.args[1:]:
                work.problem(call, f"line {call.lineno} moves to a rank and changes the type at once")
                return
            work.edits.append(verbs.replace(call, func.value, f".cuda({', '.join(rest)})"))

    def _is_device(self, node: ast.expr) -> bool:
        if self.ranks.kind(node) in (RANK, LOCAL):
            return True
        text = node
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
            text = node.left
        elif (
            isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format"
        ):
            text = node.func.value
        elif isinstance(node, ast.JoinedStr) and node.values:
            text = node.values[0]
        return (
            text is not node
            and isinstance(text, ast.Constant)
            and str(text.value).startswith("cuda")
            and self.ranks.holds(node)
        )

    # -- loaders

    def _unclear_loaders(self) -> None:
        """A training loader without a DistributedSampler shares its data in a way that cannot be seen."""
        if self.work.problems:
            return
        sharded = set(self.work.sharded)
        for loader in sorted(self.script.training_loaders, key=v.Entity.place):
            site = loader.site
            if site not in sharded and isinstance(site, ast.AST) and hasattr(site, "lineno"):
                self.work.problem(
                    site,
                    f"the training loader of line {site.lineno} has no DistributedSampler, so that it cannot be seen "
                    "how the processes share the data",
                )
