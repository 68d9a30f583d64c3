"""What a statement at the top of a run does, by which the Accelerator's place is found: before it or after it."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable

from accelify.analysis import values as v
from accelify.analysis.devices.choice_statements import binds_device, chooses_device
from accelify.analysis.devices.options import parses
from accelify.analysis.script import ScriptModel
from accelify.analysis.statements.always_bound import always_binds
from accelify.analysis.syntax import dotted, walk
from accelify.analysis.values import Entity

DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
# Calls before which the Accelerator need not exist yet.
_HARMLESS_CALLS = (
    "torch.manual_seed torch.cuda.manual_seed torch.cuda.manual_seed_all random.seed numpy.random.seed "
    "torch.cuda.is_available torch.accelerator.is_available torch.backends.mps.is_available "
    "warnings.filterwarnings matplotlib.use logging.getLogger torch.device torch.accelerator.current_accelerator "
    "torch.set_default_dtype torch.set_num_threads torch.use_deterministic_algorithms"
).split()


def makes_role(script: ScriptModel, stmt: ast.stmt) -> bool:
    """Whether a statement, or one that a test is above, makes what is prepared or chooses the device."""
    if isinstance(stmt, ast.If):
        return any(makes_role(script, inner) for inner in [*stmt.body, *stmt.orelse])
    if not isinstance(stmt, ast.Assign):
        return False
    # Of several results of a function, only the names say which is which.
    given = [n for t in stmt.targets if isinstance(t, (ast.Tuple, ast.List)) for n in t.elts]
    made = [stmt.value, *given]
    return chooses_device(script, stmt) or any(
        script.is_a(value, v.MODEL, v.OPTIMIZER, v.LOADER) for value in made
    )


def leads(script: ScriptModel, block: list[ast.stmt], index: int) -> bool:
    """Whether only imports, definitions and plain values are before a statement.

    Beside constants there may be more, such as a line that is printed; beside other values only what the Accelerator
    need not be there for.
    """
    before = block[:index]
    return all(
        is_header(s) or isinstance(s, (ast.Expr, ast.Try, ast.If)) or _is_constant(s) for s in before
    ) or all(is_header(s) or _is_plain(script, s) or _is_setting(script, s) for s in before)


def _is_constant(stmt: ast.stmt) -> bool:
    """`__author__ = "..."`, `SEED = 1`."""
    return isinstance(stmt, ast.Assign) and isinstance(stmt.value, ast.Constant)


def _is_setting(script: ScriptModel, stmt: ast.stmt) -> bool:
    """`sys.path.append(ROOT)`, `warnings.filterwarnings("ignore")`."""
    if not (isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Call)):
        return False
    root = (script.qualname(stmt.value.func) or "").partition(".")[0]
    return root in sys.stdlib_module_names and root != "builtins"


def _is_plain(script: ScriptModel, stmt: ast.stmt) -> bool:
    """`SEED = 1`, `NAMES = ["a", "b"]`, `ROOT = Path(__file__).parent`, as they are above the imports of a file."""
    if not isinstance(stmt, (ast.Assign, ast.AnnAssign)) or stmt.value is None:
        return False
    names = [n for n in walk(stmt.value) if isinstance(n, ast.Name)]
    called = [n.func for n in walk(stmt.value) if isinstance(n, ast.Call)]
    if any((dotted(one) or str(getattr(one, "attr", ""))).rpartition(".")[2] == "open" for one in called):
        return False  # the main process opens it, and has to be known
    own = set(map(id, called))
    origins = [script.qualname(n) or ("" if id(n) in own else "builtins") for n in names]
    return all(one.partition(".")[0] in {"builtins", *sys.stdlib_module_names} for one in origins)


def is_header(stmt: ast.stmt) -> bool:
    """Whether a statement imports, defines or describes."""
    if isinstance(
        stmt, (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Global)
    ):
        return True
    if isinstance(stmt, ast.Try):
        return any(isinstance(s, (ast.Import, ast.ImportFrom)) for s in stmt.body)
    return isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Constant)


def parses_arguments(script: ScriptModel, stmt: ast.stmt) -> bool:
    """Whether a statement makes the options: `args = parser.parse_args()`, `config = load(path)`."""
    if not isinstance(stmt, (ast.Assign, ast.AnnAssign)) or not isinstance(stmt.value, ast.Call):
        return False
    roles = (v.OPTIMIZER, v.MODEL, v.LOADER, v.SCHEDULER, v.CRITERION, v.TENSOR, v.PARAMETERS)
    if script.is_a(stmt.value, *roles):
        return False  # `opt = SGD(...)` is no namespace of options
    if any(isinstance(n, ast.Name) and script.is_a(n, v.MODEL, v.PARAMETERS) for n in walk(stmt.value)):
        return False
    return parses(stmt.value) or any(
        isinstance(value, Entity) and _holds_options(value) for value in script.values(stmt.value)
    )


def _holds_options(value: Entity) -> bool:
    """Whether a parser makes it, or a class that only has fields: `class Config: lr = 0.1`."""
    if value.cls is not None and value.kind == v.INSTANCE:
        return not value.cls.external_bases() and not any(one.scope.children for one in value.cls.ancestry())
    return isinstance(value.site, ast.Call) and parses(value.site)


def is_moved_by_then(block: list[ast.stmt], index: int, needed: frozenset[str]) -> bool:
    """Whether a statement binds options again, out of a checkpoint, by which something was moved in front of it.

    `model.to(args.device)` above `if args.resume: args = checkpoint["args"]`: the Accelerator knew its device there.
    """
    again = {n for n in defines(block[index]) & needed if any(always_binds(s, n) for s in block[:index])}
    return bool(again) and any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "to"
        and any(isinstance(n, ast.Attribute) and dotted(n.value) in again for a in node.args for n in walk(a))
        for stmt in block[:index]
        if not isinstance(stmt, DEFINITIONS)
        for node in walk(stmt)
    )


def may_set_options(script: ScriptModel, ahead: Iterable[ast.stmt]) -> bool:
    """Whether one of the statements in front of all training runs text that may set any name of its module."""
    for stmt in ahead:
        if runs_text(script, stmt):
            return True
        if script.trains(stmt) or makes_role(script, stmt):
            return False
    return False


def runs_text(script: ScriptModel, stmt: ast.stmt) -> bool:
    """`exec(open("configurator.py").read())` in a module: options of the command line override its variables."""
    if not isinstance(stmt, (ast.Expr, ast.For, ast.If, ast.With)):
        return False
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and script.qualname(node.func) == "builtins.exec"
        and script.scope_of(node).kind == "module"
        and all(isinstance(a, ast.Call) and dotted(a.func) == "globals" for a in node.args[1:])
        and not any(_imports(text) for text in node.args[:1])
        for node in walk(stmt)
    )


def _imports(text: ast.expr) -> bool:
    """`"from models import %s" % name`: text that is seen to import something, and sets no option."""
    first = next((n.value for n in walk(text) if isinstance(n, ast.Constant)), None)
    return isinstance(first, str) and first.lstrip().startswith(("import ", "from "))


def defines(stmt: ast.stmt) -> set[str]:
    """The names and attributes that a statement sets or imports."""
    if isinstance(stmt, (*DEFINITIONS, ast.For, ast.While)):
        return set()
    attributes = {
        dotted(n) or "" for n in walk(stmt) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)
    }
    imported = {
        alias.asname or alias.name.partition(".")[0]
        for n in walk(stmt)
        if isinstance(n, (ast.Import, ast.ImportFrom))
        for alias in n.names
    }
    names = {n.id for n in walk(stmt) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return attributes | imported | names


def is_harmless(script: ScriptModel, stmt: ast.stmt) -> bool:
    """Whether the Accelerator need not exist yet when a statement runs: seeds, options, imports."""
    if isinstance(stmt, (*DEFINITIONS, ast.Import, ast.ImportFrom, ast.Pass)):
        return True
    if binds_device(script, stmt) or isinstance(stmt, (ast.For, ast.While, ast.With, ast.Try)):
        return False
    if asks_rank(script, stmt):
        return False
    for node in walk(stmt):
        if isinstance(node, ast.Call):
            name = script.qualname(node.func)
            if name not in _HARMLESS_CALLS and not (
                isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument"
            ):
                return False
    return True


def asks_rank(script: ScriptModel, stmt: ast.stmt) -> bool:
    """Whether a statement asks the Accelerator for something that its plain form cannot express."""
    start, end = script.tree.start(stmt), script.tree.end(stmt)
    return any(start <= script.tree.start(n) < end for n in script.placeholders)
