"""NVIDIA apex: amp becomes the Accelerator's mixed precision, its synchronised batch norm becomes torch's."""

from __future__ import annotations

import ast

from accelify.analysis.metrics.counts import made_once
from accelify.analysis.scopes import Scope, handed_to
from accelify.analysis.syntax import call_argument, dotted, is_constant, names_in, walk
from accelify.lowering.work import Work
from accelify.transforms.apex import APEX as RULE

_AMP = "apex.amp."
_SYNC = "apex.parallel.convert_syncbn_model"
# What apex does at each level beyond casting with care is dropped; level 0 casts nothing.
_LEVELS = ("O1", "O2", "O3")


def lower_apex(work: Work) -> None:
    """Take out amp.initialize, scale_loss, master_params and amp's state; have torch synchronise batch norm."""
    script = work.script
    calls = [c for c in script.calls() if (script.qualname(c.func) or "").startswith((_AMP, _SYNC))]
    if not calls:
        imports = [*work.tree.nodes(ast.Import), *work.tree.nodes(ast.ImportFrom)]
        for stmt in imports:
            # Imported and never used: it goes with what is unread.
            names = [a.name for a in stmt.names] if isinstance(stmt, ast.Import) else [stmt.module or ""]
            if (
                any(n.split(".")[0] == "apex" for n in names)
                and not any(work.loads((a.asname or a.name).split(".")[0]) for a in stmt.names)
                and not work.decides(stmt)
            ):
                work.found(RULE, stmt, "apex is imported and not used")
        return
    for call in calls:
        name = (script.qualname(call.func) or "").removeprefix(_AMP)
        if name == "initialize":
            _initialize(work, call)
        elif name == _SYNC:
            _synchronised(work, call)
        elif name == "scale_loss":
            _scale_loss(work, call)
        elif name == "master_params":
            optimizer = call_argument(call, 0, "optimizer")
            if optimizer is None:
                work.problem(call, f"line {call.lineno} calls amp.master_params of nothing")
                continue
            work.replace(call, _parameters(work, optimizer, call))
            work.found(RULE, call, "the Accelerator unscales the model's own parameters")
        elif name in ("state_dict", "load_state_dict"):
            _state(work, call)
        elif name == "register_float_function" or name == "register_half_function":
            work.problem(
                call, f"line {call.lineno} tells amp how to cast a function, which has no counterpart"
            )
        else:
            work.problem(call, f"line {call.lineno} uses amp.{name}, which has no counterpart")
    _handed_on(work)
    _same_branches(work)


def _initialize(work: Work, call: ast.Call) -> None:
    tree, script = work.tree, work.script
    stmt = tree.parent(call)
    given = [
        a for a in (call_argument(call, 0, "models"), call_argument(call, 1, "optimizers")) if a is not None
    ]
    if not isinstance(stmt, ast.Assign) or len(stmt.targets) != 1 or not given:
        work.problem(call, f"line {call.lineno} calls amp.initialize other than in an assignment")
        return
    target = stmt.targets[0]
    targets = target.elts if isinstance(target, ast.Tuple) and len(given) > 1 else [target]
    if len(targets) != len(given):
        work.problem(call, f"line {call.lineno} takes what amp.initialize gives back in another shape")
        return
    if all(_same(t, g) for t, g in zip(targets, given, strict=True)):
        work.delete(stmt)
    else:
        work.replace(call, ", ".join(tree.segment(g) for g in given))
    level, enabled = _option(work, call, 3, "opt_level"), _option(work, call, 2, "enabled")
    conditions: list[str] = []
    names: set[str] = set()
    if isinstance(level, ast.Constant):
        if level.value == "O0":
            work.found(RULE, call, "amp casts nothing at O0: it goes")
            return
        if level.value not in _LEVELS:
            work.problem(call, f"line {call.lineno} asks amp for the unknown level {level.value!r}")
            return
    elif level is not None:
        conditions.append(f'{tree.segment(level)} != "O0"')
        names |= names_in(level)
    if enabled is not None and not isinstance(enabled, ast.Constant):
        conditions.insert(0, tree.segment(enabled))
        names |= names_in(enabled)
    for ancestor in tree.ancestors(stmt):
        if isinstance(ancestor, (ast.FunctionDef, ast.AsyncFunctionDef)):
            break
        if isinstance(ancestor, ast.If) and ancestor is not script.main_guard:
            inside = any(stmt is n for s in ancestor.body for n in walk(s))
            asked = [part for part in _parts(ancestor.test) if not _asks_what_is_there(work, part)]
            if not inside or not all(script.is_uniform(part) for part in asked):
                work.problem(
                    ancestor, f"line {ancestor.lineno} decides in a way of its own whether amp is used"
                )
                return
            conditions[:0] = [_bracketed(tree.segment(part), part) for part in asked]
            names |= {name for part in asked for name in names_in(part)}
    conditions.append("torch.cuda.is_available()")
    work.known.arguments["mixed_precision"] = f'"fp16" if {" and ".join(conditions)} else "no"'
    work.known.names |= frozenset(n for n in names if n != "torch")
    what = "the Accelerator casts to fp16 in the way of O1"
    if level is not None and not (isinstance(level, ast.Constant) and level.value == "O1"):
        what += f", whatever level `{tree.segment(level)}` asks for"
    work.found(RULE, call, what)


def _parts(test: ast.expr) -> list[ast.expr]:
    """The conditions of a test that all have to hold."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return [part for value in test.values for part in _parts(value)]
    return [test]


def _asks_what_is_there(work: Work, test: ast.expr) -> bool:
    """Whether a condition tests for apex, which is not needed any more (`amp is not None`), or for CUDA."""
    if isinstance(test, ast.Call):
        return work.script.qualname(test.func) == "torch.cuda.is_available"
    if (
        isinstance(test, ast.Compare)
        and isinstance(test.ops[0], ast.IsNot)
        and is_constant(test.comparators[0], None)
    ):
        test = test.left
    return isinstance(test, ast.Name) and (work.script.qualname(test) or "").split(".")[0] == "apex"


def _option(work: Work, call: ast.Call, index: int, name: str) -> ast.expr | None:
    """An option of amp.initialize by its name, also in `options = dict(opt_level=level)` and `**options`."""
    given = call_argument(call, index, name)
    for spread in (kw.value for kw in call.keywords if kw.arg is None and given is None):
        if isinstance(spread, ast.Name):
            made = made_once(work.script, spread)
            spread = made if made is not None and not _is_set(work, spread, name) else spread
        if isinstance(spread, ast.Dict):
            entries = zip(spread.keys, spread.values, strict=True)
            given = next((contained for key, contained in entries if is_constant(key, name)), None)
        elif isinstance(spread, ast.Call) and dotted(spread.func) == "dict":
            given = next((kw.value for kw in spread.keywords if kw.arg == name), None)
        else:
            work.problem(call, f"line {call.lineno} hands amp.initialize options that cannot be read")
    return given


def _is_set(work: Work, options: ast.Name, name: str) -> bool:
    """Whether an entry of a dictionary is set after the dictionary is made: `options["opt_level"] = level`."""
    scope = work.script.scope_of(options).resolve(options.id)
    return any(
        isinstance(n.ctx, ast.Store)
        and isinstance(n.value, ast.Name)
        and n.value.id == options.id
        and (is_constant(n.slice, name) or not isinstance(n.slice, ast.Constant))
        and work.script.scope_of(n).resolve(options.id) is scope
        for n in work.tree.nodes(ast.Subscript)
    )


def _synchronised(work: Work, call: ast.Call) -> None:
    """`apex.parallel.convert_syncbn_model(model)`, which torch has had itself since it knows how to synchronise."""
    scope = work.script.scope_of(call)
    if len(call.args) > 2 or any(kw.arg not in ("module", "process_group") for kw in call.keywords):
        work.problem(
            call, f"line {call.lineno} asks apex's batch norm for a layout, which has no counterpart"
        )
        return
    home = scope.resolve("nn")
    short = home is not None and home.kind == "module" and _imports_nn(work)
    if not short and scope.resolve("torch") is None:
        work.problem(
            call, f"line {call.lineno} would call torch's SyncBatchNorm, and `torch` is not imported"
        )
        return
    work.replace(call.func, f"{'nn' if short else 'torch.nn'}.SyncBatchNorm.convert_sync_batchnorm")
    work.found(RULE, call, "torch synchronises batch norm itself")


def _imports_nn(work: Work) -> bool:
    """Whether `nn` is torch's, everywhere in the script."""
    named = [
        (f"{stmt.module}.{alias.name}" if isinstance(stmt, ast.ImportFrom) else alias.name)
        for stmt in [*work.tree.nodes(ast.Import), *work.tree.nodes(ast.ImportFrom)]
        for alias in stmt.names
        if (alias.asname or alias.name) == "nn"
    ]
    return bool(named) and all(name == "torch.nn" for name in named)


def _bracketed(text: str, node: ast.expr) -> str:
    return f"({text})" if isinstance(node, (ast.BoolOp, ast.IfExp, ast.Lambda)) else text


def _same(target: ast.expr, value: ast.expr) -> bool:
    return ast.dump(target).replace("ctx=Store()", "ctx=Load()") == ast.dump(value)


def _scale_loss(work: Work, call: ast.Call) -> None:
    """`with amp.scale_loss(loss, optimizer) as scaled: scaled.backward()` becomes `loss.backward()`."""
    tree = work.tree
    item = tree.parent(call)
    stmt = tree.parent(item) if isinstance(item, ast.withitem) else None
    loss = call_argument(call, 0, "loss")
    if not isinstance(stmt, ast.With) or not isinstance(item, ast.withitem) or loss is None:
        work.problem(call, f"line {call.lineno} scales the loss other than by `with amp.scale_loss(...)`")
        return
    scaled = item.optional_vars
    if not isinstance(scaled, ast.Name) or len(stmt.items) != 1:
        work.problem(call, f"line {call.lineno} scales the loss together with something else")
        return
    reads = [n for s in stmt.body for n in walk(s) if isinstance(n, ast.Name) and n.id == scaled.id]
    for read in reads:
        parent = tree.parent(read)
        outer = tree.parent(parent) if parent is not None else None
        if not (
            isinstance(parent, ast.Attribute) and parent.attr == "backward" and isinstance(outer, ast.Call)
        ):
            work.problem(read, f"the scaled loss of line {read.lineno} is used for more than backward")
            return
        text = tree.segment(loss)
        work.replace(
            read,
            text if isinstance(loss, (ast.Name, ast.Attribute, ast.Call, ast.Subscript)) else f"({text})",
        )
    if any(tree.has_multiline_string(s) for s in stmt.body) or not tree.own_line(stmt):
        work.problem(call, f"what stands under amp.scale_loss in line {call.lineno} cannot be moved out")
        return
    work.unwrap(stmt)
    work.found(RULE, call, "the Accelerator scales the loss in its backward")


def _parameters(work: Work, optimizer: ast.expr, call: ast.Call) -> str:
    """How the parameters of an optimizer are written: those of its one model, else of its groups."""
    models = {m for o in work.script.entities(optimizer, "optimizer") for m in o.link("models")}
    names = {
        h.text(work.script.scope_of(call))
        for m in models
        for h in work.script.holders_of(m)
        if h.cls is not None or h.scope is None or work.script.scope_of(call).resolve(h.name) is h.scope
    }
    # A function's parameter that is the model is nearer than the caller's name.
    scope = work.script.scope_of(call)
    own = [
        a.arg
        for a in scope.parameters()
        if models & set(work.script.interpreter.variables.get((scope, a.arg), set()))
    ]
    if len(models) == 1 and (own or names):
        return f"{(own or sorted(names, key=len))[0]}.parameters()"
    text = work.tree.segment(optimizer)
    return f'[p for group in {text}.param_groups for p in group["params"]]'


def _state(work: Work, call: ast.Call) -> None:
    """amp's state in checkpoints, which the Accelerator's scaler takes over."""
    tree = work.tree
    parent = tree.parent(call)
    if isinstance(parent, ast.Expr):
        work.delete(parent)
    elif isinstance(parent, ast.Dict):
        work.drop_entry(parent, parent.values.index(call))
    elif isinstance(parent, ast.Assign) and isinstance(parent.targets[0], ast.Subscript):
        work.delete(parent)
    else:
        work.problem(call, f"line {call.lineno} does something of its own with amp's state")
        return
    work.found(RULE, call, "amp's state is not saved any more")


def _handed_on(work: Work) -> None:
    """An argument amp of a function, `save(model, amp)`, is removed once nothing there reads it."""
    script = work.script
    handed: dict[tuple[Scope, str], list[tuple[ast.Call, ast.expr]]] = {}
    for call in script.calls():
        for argument in [*call.args, *(kw.value for kw in call.keywords)]:
            if not isinstance(argument, ast.Name) or script.qualname(argument) != "apex.amp":
                continue
            named = [
                (scope, name)
                for scope in script.callees(call)
                for given, name in handed_to(call, scope)
                if given is argument
            ]
            if not named:
                work.problem(argument, f"line {argument.lineno} hands apex's amp on to what is not known")
            for one in named:
                handed.setdefault(one, []).append((call, argument))
    for (scope, name), places in handed.items():
        signature = getattr(scope.node, "args", None)
        reads = [n for n in work.loads(name) if script.scope_of(n).resolve(name) is scope]
        if (
            not isinstance(signature, ast.arguments)
            or len(places) != len(script.callers(scope))
            or sum(other is scope for other, _ in handed) > 1
            or work.left(reads)
        ):
            work.problem(places[0][1], f"line {places[0][1].lineno} hands apex's amp on to `{scope.name}`")
            continue
        work.drop_parameter(signature, name)
        for call, argument in places:
            keyword = next((kw for kw in call.keywords if kw.value is argument), None)
            work.drop_arguments(call, [keyword or argument])
        work.found(RULE, places[0][1], f"`{scope.name}` needs amp no more")


def _same_branches(work: Work) -> None:
    """`if fp16: <amp's backward>` and `else: loss.backward()` are the same now."""
    tree = work.tree
    for branch in tree.nodes(ast.If):
        if len(branch.body) != 1 or len(branch.orelse) != 1 or tree.is_elif(branch):
            continue
        inner, other = branch.body[0], branch.orelse[0]
        if not isinstance(inner, ast.With) or inner not in work.unwrapped or len(inner.body) != 1:
            continue
        scaled, plain = inner.body[0], other
        if not (isinstance(scaled, ast.Expr) and isinstance(plain, ast.Expr)):
            continue
        call = inner.items[0].context_expr
        name = inner.items[0].optional_vars
        assert isinstance(call, ast.Call)
        assert isinstance(name, ast.Name)
        loss = call_argument(call, 0, "loss")
        if dotted(loss) is None or not isinstance(plain.value, ast.Call):
            continue
        text = ast.unparse(scaled).replace(name.id, ast.unparse(loss) if loss is not None else "", 1)
        if text == ast.unparse(plain):
            work.merge(branch, plain)
