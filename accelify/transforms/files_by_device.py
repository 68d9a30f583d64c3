"""Files named after the device, which differs between processes: one process writes a file that no other finds.

path = "net_%d_%s.pt" % (epoch, device)    ->  path = "net_%d_%s.pt" % (epoch, device.type)
torch.save(model.state_dict(), path)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis import values as v
from accelify.analysis.syntax import call_argument, walk
from accelify.findings import Safety
from accelify.transforms.base import Change, Context, Rule
from accelify.writer import edits as verbs
from accelify.writer.edits import Edit

NAMED = Rule(
    "ACC213",
    "The name of a file holds the device, which is another one on every process.",
    safety=Safety.REVIEW,
    effort=5,
    done="took the device's number out of file names",
)
_FILES = frozenset(
    "save load open remove exists isfile isdir makedirs mkdir savefig save_image imsave savez savetxt copy "
    "copyfile load_state_dict".split()
)
_PLACES = frozenset({"map_location", "device", "device_map"})
_MARK = "name the file after device.type, which is the same on every process"


def transform(context: Context) -> Iterator[Change]:
    """Yield the edits that put the kind of the device in the place of its number."""
    if context.plan.arguments.get("cpu") == "True":
        return
    for text in context.tree.nodes(ast.BinOp, ast.JoinedStr, ast.Call):
        devices = [
            node
            for node in _written_out(text)
            if isinstance(node, (ast.Name, ast.Attribute)) and context.script.is_a(node, v.DEVICE)
        ]
        if not devices or not _names_a_file(context, text):
            continue
        message = f"`{context.tree.segment(devices[0])}` is another device on every process, and names a file"
        if context.accelerator(text) is None:
            yield context.todo(NAMED, text, message, _MARK)
            continue
        # Before everything else that follows the name: another argument of the call around it.
        edits: list[Edit] = [verbs.replace(node, node, ".type", order=50) for node in devices]
        yield context.change(NAMED, text, message, edits)


def _written_out(text: ast.BinOp | ast.JoinedStr | ast.Call) -> list[ast.expr]:
    """What an expression makes text of: `"%s" % x`, `f"{x}"`, `"{}".format(x)`, `str(x)`."""
    if isinstance(text, ast.JoinedStr):
        return [part.value for part in text.values if isinstance(part, ast.FormattedValue)]
    if isinstance(text, ast.BinOp):
        if not isinstance(text.op, ast.Mod) or not isinstance(text.left, (ast.Constant, ast.JoinedStr)):
            return []
        return text.right.elts if isinstance(text.right, ast.Tuple) else [text.right]
    func = text.func
    if isinstance(func, ast.Attribute) and func.attr == "format":
        return [*text.args, *(keyword.value for keyword in text.keywords)]
    return text.args[:1] if isinstance(func, ast.Name) and func.id == "str" else []


def _names_a_file(context: Context, text: ast.expr) -> bool:
    """Whether a text goes into a call that reads or writes a file, or into a variable that does."""
    inside: ast.AST = text
    for ancestor in context.tree.ancestors(text):
        if isinstance(ancestor, ast.keyword) and ancestor.arg in _PLACES:
            return False  # where what is read goes to
        if isinstance(ancestor, ast.Call) and inside is call_argument(ancestor, 1, "map_location"):
            if context.script.qualname(ancestor.func) == "torch.load":
                return False
        if isinstance(ancestor, ast.Call) and inside is not ancestor.func and _is_of_files(ancestor):
            return True
        if isinstance(ancestor, ast.Assign) and len(ancestor.targets) == 1:
            target = ancestor.targets[0]
            if not isinstance(target, ast.Name):
                return False
            scope = context.script.scope_of(target).resolve(target.id)
            return any(
                isinstance(node, ast.Name)
                and node.id == target.id
                and context.script.scope_of(node).resolve(node.id) is scope
                for call in context.script.calls()
                if _is_of_files(call)
                for argument in [*call.args, *(keyword.value for keyword in call.keywords)]
                for node in walk(argument)
            )
        if isinstance(ancestor, ast.stmt):
            return False
        inside = ancestor
    return False


def _is_of_files(call: ast.Call) -> bool:
    last = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return last in _FILES
