"""Checkpoints are loaded to the process's device.

checkpoint = torch.load(path)               ->  checkpoint = torch.load(path, map_location=accelerator.device)
checkpoint = torch.load(path)               ->  checkpoint = torch.load(path, map_location="cpu")    (where there is no
                                                Accelerator, and a load_state_dict copies it)
torch.set_rng_state(checkpoint["random"])   ->  torch.set_rng_state(checkpoint["random"].cpu())

Before a checkpoint or a picture is read that the main process has just written, the others wait for it.
"""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Iterator, Set

from accelify.analysis import values as v
from accelify.analysis.devices.composed_device_texts import is_numbered_gpu
from accelify.analysis.devices.options import holds_options
from accelify.analysis.files.effect_sites import FILES, PICTURES, defaults_of
from accelify.analysis.files.folders import path_text
from accelify.analysis.files.reading_calls import READING
from accelify.analysis.files.saved_objects import saved_to
from accelify.analysis.files.values_from_files import comes_from, loads_of_states
from accelify.analysis.files.writing_calls import WRITING, opens_for_writing
from accelify.analysis.schedules.training_before import trains_only_after
from accelify.analysis.scopes import Scope, handed_to
from accelify.analysis.statements.statement_calls import statement_for
from accelify.analysis.syntax import call_argument, call_keyword, calls_in, target_names
from accelify.analysis.values import Entity, Method
from accelify.findings import Severity
from accelify.transforms.base import Change, Context, Rule
from accelify.writer import edits as verbs
from accelify.writer.edits import Edit, InsertBefore

LOAD = Rule(
    "ACC207",
    "Every process would load this to the device it was saved from.",
    effort=1,
    done="loaded checkpoints to the process's device or the CPU",
)
CHECKPOINT = re.compile(r"ckpt|check_?point|state|weight|model|resume|^saved|pretrain|param", re.I)
# Words in the path of a checkpoint, and the names of entries by which a data set of such a name is one.
_CHECKPOINT_PATH = re.compile(r"ckpt|check_?point|resum|pretrain|snapshot|best|weights", re.I)
_DATA = re.compile(r"data|train|val|test|image|label|target|sample|batch", re.I)
_FIGURE = re.compile(r"acc|loss|err|score|epoch|step|iou|bleu|best", re.I)

# What finds checkpoints that were written before.
_READS = frozenset({"torch.load", "glob.glob", "glob.iglob", "os.listdir", "os.scandir"})
_ASKING = frozenset({"os.path.isfile", "os.path.exists", "os.path.getsize"})
_READERS = ("load", "read", "imread", "Vectors")
_NO_READERS = (
    "builtins.",
    "os.",
    "shutil.",
    "logging.",
    "torch.save",
    "numpy.save",
    "matplotlib.",
    "torchvision.utils.",
)
_STATES = frozenset({"torch.set_rng_state", "torch.random.set_rng_state", "torch.cuda.set_rng_state"})
_ALL_STATES = frozenset({"torch.cuda.set_rng_state_all"})
_LISTING = _READS - {"torch.load"}
# Marks the paths of calls that are not known to read.
_OTHER = "?"
_WRITING_WORDS = (b"save", b"dump", b"open(", b".to_", b"write")
_NAMES_FILE = re.compile(r"\.\w{2,5}$")
_STORED = frozenset({FILES, PICTURES})
_CHECKPOINTS = frozenset({"torch.save", "torch.jit.save", "pickle.dump", "dill.dump", "joblib.dump"})
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def transform(context: Context) -> Iterator[Change]:
    """Yield a map_location for loads of checkpoints, and a wait before loads of what was just written."""
    yield from _waits(context)
    placed: set[ast.expr] = set()
    loads = [
        call
        for call in context.script.calls_to(["torch.load"])
        if not context.is_claimed(call)
        if len(call.args) <= 1 and not any(kw.arg is None for kw in call.keywords)
    ]
    others = [call for call in loads if not _is_checkpoint(context, call)]
    taken = loads_of_states(context.script, others) if others else set()
    others = [call for call in others if call not in taken]
    for call in loads:
        if call in others:
            continue
        accelerator = context.accelerator(call)
        given = call_keyword(call, "map_location")
        if accelerator is None:
            if given is None:
                yield from _to_host(context, call)
            continue
        edit: Edit
        try:
            if given is None:
                edit = verbs.AddArgument(call, f"map_location={accelerator}.device")
            elif _is_of_one_gpu(context, given):
                edit = verbs.replace(given, f"{accelerator}.device")
            else:
                continue
        except verbs.EditError:
            continue
        placed.add(call)
        yield context.change(LOAD, call, "all processes would load this to the same device", [edit])
    yield from _random_states(context, placed)


def _is_of_one_gpu(context: Context, given: ast.expr) -> bool:
    """`"cuda:0"`, `f"cuda:{args.gpu}"`, `torch.device("cuda:0")`: the same GPU for all processes."""
    if isinstance(given, ast.Call) and context.script.qualname(given.func) == "torch.device":
        return len(given.args) == 1 and not given.keywords and _is_of_one_gpu(context, given.args[0])
    if isinstance(given, ast.Constant):
        return str(given.value).startswith("cuda")
    return is_numbered_gpu(given)


def _to_host(context: Context, call: ast.Call) -> Iterator[Change]:
    """A load where the Accelerator cannot be had: what is copied from, by a `load_state_dict`, may be on the host."""
    scope = context.script.scope_of(call)
    runs = bool(context.script.callers(scope)) if scope.kind == "function" else scope.kind == "module"
    if not runs or context.plan.on_main_only(call) or context.plan.arguments.get("cpu") == "True":
        return
    if not loads_of_states(context.script, [call]):
        return
    with contextlib.suppress(verbs.EditError):
        edit = verbs.AddArgument(call, 'map_location="cpu"')
        yield context.change(LOAD, call, "all processes would load this to the same device", [edit])


def _random_states(context: Context, placed: set[ast.expr]) -> Iterator[Change]:
    """States of random numbers out of a checkpoint that is loaded to the device: torch takes them from the host."""
    for call in context.script.calls_to(_STATES | _ALL_STATES) if placed else ():
        name = context.script.qualname(call.func) or ""
        state = call_argument(call, 0, "states" if name in _ALL_STATES else "new_state")
        if state is None or context.is_claimed(call):
            continue
        if not isinstance(state, (ast.Name, ast.Attribute, ast.Subscript, ast.Call)):
            continue
        if not comes_from(context.script, state, placed):
            continue
        edits: list[Edit] = [verbs.replace(state, state, ".cpu()", order=5)]
        if name in _ALL_STATES:
            edits = [
                verbs.replace(state, "[state.cpu() for state in ", state, "]", order=5),
            ]
        message = "the state of random numbers has to lie on the CPU, where the checkpoint no longer does"
        yield context.change(LOAD, call, message, edits)


def _is_checkpoint(context: Context, call: ast.Call) -> bool:
    """Whether what is loaded goes into a `load_state_dict` at once, or has the name of a checkpoint or of a model."""
    if _is_entry(context, call):
        return True
    for ancestor in context.tree.ancestors(call):
        if isinstance(ancestor, ast.Call) and isinstance(ancestor.func, ast.Attribute):
            if ancestor.func.attr == "load_state_dict":
                return True
        if isinstance(ancestor, ast.stmt):
            targets = ancestor.targets if isinstance(ancestor, ast.Assign) else []
            bound = [t for t in targets if isinstance(t, (ast.Name, ast.Attribute))]
            return any(CHECKPOINT.search(n) for t in targets for n in target_names(t)) or any(
                context.script.is_a(t, v.MODEL, v.OPTIMIZER) for t in bound
            )
    return False


def _is_entry(context: Context, call: ast.Call) -> bool:
    """Whether one entry of a checkpoint is taken at once: `radius = torch.load(args.resume)["radius"]`."""
    entry, path = context.tree.parent(call), call_argument(call, 0, "f")
    if not isinstance(entry, ast.Subscript) or entry.value is not call or path is None:
        return False
    key = entry.slice.value if isinstance(entry.slice, ast.Constant) else None
    read = context.tree.parent(entry)
    if not isinstance(key, str) or isinstance(read, ast.Attribute):
        return False
    if _DATA.search(key) and not _FIGURE.search(key):
        return False
    return _CHECKPOINT_PATH.search(context.tree.segment(path)) is not None


def _waits(context: Context) -> Iterator[Change]:
    """A file that the main process wrote is there for the others once all have waited for it."""
    tree, script = context.tree, context.script
    # A helper of another module may save under any name: `put(model, path)`.
    modules = script.program.modules.values()
    if not any(module.tree.mentions(word) for module in modules for word in _WRITING_WORDS):
        return
    loads = script.calls_to(["torch.load"])
    # A script that trains reads what the training before it has left; after its training, the files that it wrote.
    loading = {
        scope
        for c in loads
        if (scope := script.scope_of(c)) is not script.scopes.module
        if scope not in script.training_scopes or trains_only_after(script, c)
    }
    done: set[ast.stmt] = set()
    for call in tree.in_order(script.calls()):
        name = script.qualname(call.func) or ""
        plain = name in _READS or bool(script.callees(call) & loading) or _loads_elsewhere(context, call)
        paths = frozenset() if plain else _paths_read(context, call, name)
        if plain and name not in _LISTING and _is_before_training(context, call):
            # A checkpoint to go on from: of what this run has written, it is one of the same name only.
            paths = _given(context, call)
            plain = not paths
        if not plain and not paths:
            continue
        place = _after_writing(context, tree.statement(call), paths, done, script.callees(call))
        if place is None:
            continue
        accelerator = context.accelerator(place)
        if accelerator is None or not context.runs_everywhere(place):
            if name == "torch.load" or script.callees(call) & loading or _loads_elsewhere(context, call):
                done.add(place)
                message = (
                    "only the main process saves what this loads, and another may come here before that: where all "
                    "come by, let them wait in between (accelerator.wait_for_everyone())"
                )
                yield context.change(LOAD, call, message, severity=Severity.WARNING)
            continue
        done.add(place)
        context.waiting.add(place)
        edit = InsertBefore(place, (f"{accelerator}.wait_for_everyone()",))
        yield context.change(LOAD, call, "the file may still be being written by the main process", [edit])


def _is_before_training(context: Context, call: ast.Call) -> bool:
    """Whether a call runs once, before all of the training."""
    script, scope = context.script, context.script.scope_of(call)
    around = [call, *(script.callers(scope) if scope.kind == "function" else ())]
    if any(script.enclosing_loops(one) for one in around):
        return False
    return trains_only_after(script, call)


def _loads_elsewhere(context: Context, call: ast.Call) -> bool:
    """Whether a call runs a function of a module that stays as it is, and that loads a checkpoint."""
    interpreter = context.script.interpreter
    for callee in context.script.callees(call):
        module = interpreter.module_of(callee)
        if module in context.script.modules or not module.tree.mentions("torch.load"):
            continue
        calls = calls_in(callee.node)
        if any(context.effects.qualname(module, callee, c.func) == "torch.load" for c in calls):
            return True
    return False


def _after_writing(
    context: Context, stmt: ast.stmt, paths: frozenset[str], done: set[ast.stmt], readers: Set[Scope]
) -> ast.stmt | None:
    """The statement around a read, or itself, before which its block writes what nobody has waited for yet."""
    tree = context.tree
    while True:
        owner, _, block = tree.block_of(stmt)
        earlier: list[ast.stmt] = block[: block.index(stmt)]
        waited = max((i for i, s in enumerate(earlier) if s in done), default=0)
        if stmt in done:
            return None
        if any(_writes(context, s, paths, readers) for s in earlier[waited:]):
            return stmt
        if waited or not isinstance(owner, ast.stmt) or isinstance(owner, _DEFINITIONS):
            return None
        stmt = owner


def _writes(context: Context, stmt: ast.stmt, paths: frozenset[str], readers: Set[Scope]) -> bool:
    """Whether a statement writes checkpoints, or one of some paths; a redrawn plot is not read."""
    if isinstance(stmt, _DEFINITIONS):
        return False
    effects = context.effects.of_nodes(stmt)
    if not paths:
        return any(site.name in _CHECKPOINTS for site in effects.sites)
    if not effects.kinds() & _STORED:
        return False
    named = any(text.startswith(_OTHER) for text in paths)
    return any(
        # What a statement writes itself is waited for after it, where a reader is known by its name.
        any(_is_waited_for_here(context, call, text) for text in paths & _given(context, call))
        or (named and paths & {_OTHER + text for text in _given(context, call)})
        for call in calls_in(stmt)
        if not any(FILES not in context.effects.of(s).kinds() for s in context.script.callees(call) & readers)
    )


def _is_waited_for_here(context: Context, call: ast.Call, path: str) -> bool:
    """Whether a call writes a checkpoint or a picture, or runs a function that writes to a path it gets."""
    name = context.script.qualname(call.func)
    if name in _CHECKPOINTS or _writes_inside(context, call, path):
        return True
    kinds = context.effects.of_nodes(call).kinds() if not context.script.callees(call) else set()
    if saved_to(context.script, call) is not None:
        return False  # it is waited for after the statement that writes it
    return PICTURES in kinds or (FILES in kinds and not name and getattr(call.func, "attr", "") == "save")


def _writes_inside(context: Context, call: ast.Call, path: str) -> bool:
    """Whether a function writes to a path it gets; of one that draws, only the argument that names a file counts."""
    callees = context.script.callees(call)
    if statement_for(context.tree, call) is None:
        # All processes need its result: in a module that is not converted each of them writes for itself.
        callees = {s for s in callees if context.script.interpreter.module_of(s) in context.script.modules}
    kinds = {k for callee in callees for k in context.effects.of(callee).kinds()}
    return FILES in kinds or (PICTURES in kinds and _NAMES_FILE.search(path) is not None)


def _paths_read(context: Context, call: ast.Call, name: str) -> frozenset[str]:
    """What may be the path of a file that a call reads: an argument of a reader, or of a function that is one."""
    last = (name or getattr(call.func, "attr", "")).rsplit(".", 1)[-1]
    if last == "load_state_dict":
        return (
            frozenset()
        )  # it takes the content of a file, and the call that reads the file is looked at separately
    reads = name.startswith(READING) or last.startswith(_READERS)
    reads = reads or any(context.effects.reads(callee) for callee in context.script.callees(call))
    if opens_for_writing(call, name) is not None:
        return frozenset()
    if name in _ASKING:
        return _given(context, call)
    if not reads and name and not name.startswith(_NO_READERS):
        # Of any library: a file whose path is written out is read, if it was written before.
        named = {
            a.value for a in [*call.args, *[kw.value for kw in call.keywords]] if isinstance(a, ast.Constant)
        }
        return frozenset(
            _OTHER + text.removeprefix("./") for text in named if isinstance(text, str) and "." in text
        )
    return _given(context, call) if reads else frozenset()


def _given(context: Context, call: ast.Call) -> frozenset[str]:
    """What may be paths among the arguments of a call, their defaults, and what its function names itself."""
    given = [*call.args, *[kw.value for kw in call.keywords]]
    found = {path_text(context.script, a) for a in given if _may_be_path(context, a)}
    for callee in context.script.callees(call) - context.script.training_scopes:
        stated = {name for _, name in handed_to(call, callee)}
        defaults = {name: value for name, value in defaults_of(callee).items() if name not in stated}
        found |= {text for value in defaults.values() if (text := _file_name(value))}
        found.update(_named_inside(context, callee))
    return frozenset(found - {""})


def _named_inside(context: Context, callee: Scope) -> Iterator[str]:
    """The files that a function reads or writes by names in its body."""
    module = context.script.interpreter.module_of(callee)
    for call in callee.nodes:
        if isinstance(call, ast.Call):
            name = context.effects.qualname(module, callee, call.func) or str(getattr(call.func, "attr", ""))
            last = name.rsplit(".", 1)[-1]
            if name in WRITING or name.startswith(READING) or last.startswith((*_READERS, "save")):
                given = [*call.args, *[kw.value for kw in call.keywords]]
                yield from (text for a in given if (text := _file_name(a)))


def _file_name(node: ast.expr | None) -> str:
    """The text of a constant that may be a file's name, else ""."""
    text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
    return text.removeprefix("./") if "." in text else ""


def _may_be_path(context: Context, node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str)
    if isinstance(node, ast.Name) and holds_options(context.script, node):
        return False
    contained = context.script.values(node)
    plain = all(isinstance(w, Method) or (isinstance(w, Entity) and w.kind == v.UNKNOWN) for w in contained)
    return plain and isinstance(node, (ast.Name, ast.Attribute, ast.BinOp, ast.Call, ast.JoinedStr))
