"""Files and directories: made by the main process alone.

os.makedirs(path)                   ->  if accelerator.is_main_process:
                                            os.makedirs(path)
if not os.path.exists(path): ...    ->  if accelerator.is_main_process and not os.path.exists(path): ...
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify import edits as verbs
from accelify.analysis.syntax import call_argument
from accelify.edits import Indent
from accelify.transforms.base import Change, Context, Rule

FILES = Rule("ACC203", "file-write", "Every process would write the same files.", effort=2)

_WRITING = frozenset(
    """os.makedirs os.mkdir os.remove os.unlink os.rename os.replace os.rmdir os.removedirs os.symlink shutil.copy
    shutil.copyfile shutil.copy2 shutil.move shutil.rmtree shutil.copytree json.dump pickle.dump yaml.dump
    numpy.save numpy.savez numpy.savez_compressed numpy.savetxt joblib.dump
    matplotlib.pyplot.savefig matplotlib.pyplot.show matplotlib.pyplot.imsave pylab.savefig pylab.show
    torchvision.utils.save_image imageio.mimsave imageio.imwrite imageio.imsave cv2.imwrite scipy.misc.imsave
    scipy.io.savemat scipy.io.wavfile.write torch.onnx.export torch.jit.save safetensors.torch.save_file
    builtins.input sys.stdout.write sys.stdout.flush sys.stderr.write""".split()
)
# Methods that write, by name alone: few enough, and rarely anything else.
_WRITING_METHODS = frozenset(
    "savefig to_csv to_json to_pickle to_excel mkdir write_text write_bytes save_pretrained push_to_hub".split()
)


def transform(context: Context) -> Iterator[Change]:
    """Yield main-process guards for statements that write."""
    tree = context.tree
    done: set[ast.stmt] = set()
    for stmt in _statements(context):
        if stmt in done or context.is_guarded(stmt):
            continue
        accelerator = context.accelerator(stmt)
        if accelerator is None:
            continue
        parent = tree.parent(stmt)
        if (
            isinstance(parent, ast.If)
            and stmt in parent.body
            and not parent.orelse
            and not tree.is_elif(parent)
            and all(_writes(context, s) for s in parent.body)
            and not any(isinstance(n, ast.Call) and context.script.callees(n) for n in ast.walk(parent.test))
        ):
            done.update(parent.body)
            if context.is_guarded(parent) or context.accelerator(parent) is None:
                continue
            test = tree.segment(parent.test)
            loose = isinstance(parent.test, (ast.BoolOp, ast.IfExp, ast.Lambda)) and not (
                isinstance(parent.test, ast.BoolOp) and isinstance(parent.test.op, ast.And)
            )
            text = f"{accelerator}.is_main_process and " + (f"({test})" if loose else test)
            yield context.change(
                FILES, stmt, "every process would write this", [verbs.replace(tree, parent.test, text)]
            )
            continue
        block = tree.block_of(stmt)[2]
        last = stmt
        done.add(stmt)
        for following in block[block.index(stmt) + 1 :]:
            if not _writes(context, following) or context.is_guarded(following):
                break
            done.add(following)
            last = following
        context.guarded.update(block[block.index(stmt) : block.index(last) + 1])
        guard = Indent(stmt, last, f"if {accelerator}.is_main_process:")
        yield context.change(FILES, stmt, "every process would write this", [guard])
    yield from _left_open(context)


def _left_open(context: Context) -> Iterator[Change]:
    """Files written by every process, where the statement cannot go under a guard."""
    for stmt in context.tree.nodes(ast.With):
        opened = [item for item in stmt.items if _opens_for_writing(context, item.context_expr)]
        if opened and not context.is_guarded(stmt) and not _keeps_to_itself(context, stmt):
            if context.plan.reach is not None and not _trains_inside(context, stmt):
                yield context.todo(
                    FILES,
                    stmt,
                    "every process would write this file, and goes on with what is made in this block",
                    "let one process write this file",
                )


def _trains_inside(context: Context, stmt: ast.With) -> bool:
    return any(context.script.trains(s) for s in stmt.body)


def _statements(context: Context) -> Iterator[ast.stmt]:
    found = [s for s in [*context.tree.nodes(ast.Expr), *context.tree.nodes(ast.With)] if _writes(context, s)]
    yield from sorted(found, key=context.tree.start)


def _writes(context: Context, stmt: ast.stmt) -> bool:
    if isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Call):
        call = stmt.value
        if context.script.qualname(call.func) in _WRITING:
            return True
        return isinstance(call.func, ast.Attribute) and call.func.attr in _WRITING_METHODS
    if isinstance(stmt, ast.With):
        return any(
            _opens_for_writing(context, item.context_expr) for item in stmt.items
        ) and _keeps_to_itself(context, stmt)
    return False


def _opens_for_writing(context: Context, node: ast.expr) -> bool:
    if not isinstance(node, ast.Call) or context.script.qualname(node.func) not in (
        "builtins.open",
        "io.open",
        "gzip.open",
    ):
        return False
    mode = call_argument(node, 1, "mode")
    return (
        isinstance(mode, ast.Constant) and isinstance(mode.value, str) and any(c in mode.value for c in "wax")
    )


def _keeps_to_itself(context: Context, stmt: ast.With) -> bool:
    """Whether nothing inside is needed by the other processes: no training, no gathering, no name used afterwards."""
    if any(context.script.trains(s) for s in stmt.body):
        return False
    stored = {
        n.id
        for s in stmt.body
        for n in ast.walk(s)
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }
    if not stored:
        return True
    end = context.tree.end(stmt)
    scope = context.script.scope_of(stmt)
    return not any(
        n.id in stored
        and isinstance(n.ctx, ast.Load)
        and context.tree.start(n) > end
        and context.script.scope_of(n).resolve(n.id) is scope.resolve(n.id)
        and not _bound_again(context, n)
        for n in context.tree.nodes(ast.Name)
    )


def _bound_again(context: Context, read: ast.Name) -> bool:
    """Whether a `with` or `for` around a read gives the name a value of its own first."""
    return any(
        isinstance(ancestor, (ast.With, ast.For))
        and any(
            isinstance(n, ast.Name)
            and n.id == read.id
            and isinstance(n.ctx, ast.Store)
            and context.tree.start(n) < context.tree.start(read)
            for n in ast.walk(ancestor)
        )
        for ancestor in context.tree.ancestors(read)
    )
