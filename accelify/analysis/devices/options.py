"""What holds a script's options: a parsed command line, a file of settings, a dictionary, a record, a plain object."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis import knowledge as k
from accelify.analysis import values as v
from accelify.analysis.devices.option_devices import handed_to_parameter
from accelify.analysis.interpretation.record_classes import is_record
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import dotted
from accelify.analysis.values import Entity, Imported, Mapping, Value

_PARSING = frozenset(
    {"parse", "parse_args", "parse_known_args", "parse_intermixed_args", "parse_args_into_dataclasses"}
)
# Functions of libraries that read settings or make them, by the beginnings of their names.
_READING = (
    "json.load yaml.load yaml.safe_load yaml.full_load yaml.unsafe_load toml.load tomllib.load tomli.load "
    "omegaconf.OmegaConf. hydra.compose types.SimpleNamespace types.MappingProxyType argparse.Namespace "
    "easydict.EasyDict munch. addict.Dict box.Box ml_collections. configparser. pyrallis.parse simple_parsing.parse "
    "tyro.cli jsonargparse. transformers.HfArgumentParser dotenv.dotenv_values wandb.config absl.flags.FLAGS "
    "docopt.docopt"
).split()
# What is called of options: they are gone through, and copied.
_OF_MAPPINGS = frozenset("get items keys values pop setdefault update copy".split())
# And what is called of their entries, which are texts, lists and further options.
_OF_ENTRIES = _OF_MAPPINGS | set(dir(str)) | set(dir(list))
# What only tensors have.
OF_TENSORS = frozenset(
    "shape size dim ndim dtype numel view reshape gather scatter permute transpose unsqueeze squeeze expand repeat "
    "float long half detach clone contiguous sum mean requires_grad is_cuda new_zeros new_ones new_tensor".split()
)
# What turns options into others: a dictionary of them, a copy.
_TURNING = frozenset({"builtins.vars", "builtins.dict", "copy.copy", "copy.deepcopy", "dataclasses.asdict"})


def holds_options(script: ScriptModel, node: ast.expr, depth: int = 4) -> bool:
    """Whether an expression holds options: what is known of it says so, or of one that nothing makes, how it is read.

    Args:
        script: its model.
        node: the expression.
        depth: through how many calls that turn options into others it is followed.
    """
    values = script.values(node)
    if any(_is_options(value) for value in values) or _is_parsed(script, node):
        return True
    if depth and any(holds_options(script, one, depth - 1) for one in _made_of(script, node)):
        return True
    if any(isinstance(value, Entity) and value.kind not in (v.UNKNOWN, v.INSTANCE) for value in values):
        return False
    return _is_read_as_options(script, node)


def _is_options(value: Value) -> bool:
    if isinstance(value, Mapping):
        return True
    if isinstance(value, Imported):
        return value.name.startswith(tuple(_READING))
    if not isinstance(value, Entity):
        return False
    if value.kind == v.INSTANCE:
        return value.cls is not None and (not value.cls.external_bases() or is_record(value))
    if value.kind != v.UNKNOWN:
        return False
    made = isinstance(value.site, ast.Call) and parses(value.site)
    return made or is_record(value) or (value.qualname or "").startswith(tuple(_READING))


def _is_read_as_options(script: ScriptModel, node: ast.expr) -> bool:
    """Whether what nothing makes is read as options are: by keys, or for fields that only plain values have."""
    text = dotted(node)
    fields = set()
    for name in script.tree.named(text.rpartition(".")[2]) if text else ():
        above = script.tree.parent(name)
        if dotted(name) != text or not isinstance(name.ctx, ast.Load):
            continue
        if isinstance(above, ast.Subscript) and above.value is name:
            if isinstance(above.slice, ast.Constant) and isinstance(above.slice.value, str):
                return True
        elif isinstance(above, ast.Attribute):
            deep = above
            while isinstance(further := script.tree.parent(deep), ast.Attribute):
                deep = further
            called = isinstance(further, ast.Call) and further.func is deep
            if called and deep.attr not in (_OF_MAPPINGS if deep is above else _OF_ENTRIES):
                return False
            if not called or deep is not above:
                fields.add(above.attr)
        elif isinstance(above, ast.Call) and above.func is name:
            return False
    return bool(fields - OF_TENSORS - k.MODULE_API - {"device"})


def parses(call: ast.Call) -> bool:
    """Whether a call parses a command line."""
    return isinstance(call.func, ast.Attribute) and call.func.attr in _PARSING


def _is_parsed(script: ScriptModel, node: ast.expr) -> bool:
    """Whether a name is the first result of a parser: `args, rest = parser.parse_known_args()`."""
    return isinstance(node, ast.Name) and any(
        isinstance(pair := script.tree.parent(write), ast.Tuple)
        and pair.elts[0] is write
        and isinstance(stmt := script.tree.parent(pair), ast.Assign)
        and isinstance(stmt.value, ast.Call)
        and parses(stmt.value)
        for write in _writes(script, node)
    )


def _made_of(script: ScriptModel, node: ast.expr) -> Iterator[ast.expr]:
    """What options are turned into others: the arguments of `vars(args)`, the assigned values of a name."""
    if isinstance(node, ast.Call):
        if script.qualname(node.func) in _TURNING and node.args:
            yield node.args[0]
    elif isinstance(node, ast.Name):
        for write in _writes(script, node):
            stmt = script.tree.parent(write)
            if isinstance(stmt, (ast.Assign, ast.AnnAssign)) and isinstance(stmt.value, (ast.Call, ast.Name)):
                yield stmt.value
        yield from handed_to_parameter(script, node, node.id)


def _writes(script: ScriptModel, name: ast.Name) -> Iterator[ast.Name]:
    owner = script.scope_of(name).resolve(name.id)
    return (w for w in script.tree.writes(name.id) if script.scope_of(w).resolve(name.id) is owner)
