"""Which functions of other modules a script can reach: what only another script calls is not part of this program."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING

from accelify.analysis.program import Module
from accelify.analysis.scopes import Scope
from accelify.analysis.syntax import Node, dotted, target_names, walk
from accelify.analysis.values import Class, Entity

if TYPE_CHECKING:
    from accelify.analysis.script import ScriptModel

# Functions that get a `__dict__` without choosing a name from it.
_SHOWING = frozenset({"print", "str", "len", "json.dump", "json.dumps", "pprint.pprint"})


def dormant_scopes(script: ScriptModel) -> set[Scope]:
    """The functions of the script's other modules that nothing calls, or only others of these."""
    others = [m for m in script.modules if m is not script.module]
    if not others or _looks_up_names(script):
        return set()
    candidates = {s for m in others for s in m.scopes.functions()}
    mentioned = mentioned_names(script)
    made = _made_classes(script)
    live: set[Scope] = set()
    changed = True
    while changed:
        changed = False
        for scope in candidates - live:
            if _is_live(script, scope, candidates, live, mentioned, made):
                live.add(scope)
                changed = True
    return candidates - live


def is_called_by_nobody(script: ScriptModel, scope: Scope) -> bool:
    """Whether nothing calls or names a function at the top of another module.

    Names that are put together choose among those that are known where they are looked up.
    """
    return script.interpreter.module_of(scope) is not script.module and _is_left_alone(script, scope)


def is_never_run(script: ScriptModel, node: Node) -> bool:
    """Whether code is in a function of a script that runs by itself, and nothing there calls or names it.

    Where the training itself waits for others to call it, they may call its neighbours as well.
    """
    scope = script.scope_of(node)
    while scope.parent is not None and scope.parent.kind != "module":
        scope = scope.parent
    trains = any(s.kind == "module" for s in script.training_scopes)
    return trains and _is_left_alone(script, scope)


def _is_left_alone(script: ScriptModel, scope: Scope) -> bool:
    """Whether a function at the top of a module is never called, named or registered."""
    module = script.interpreter.module_of(scope)
    if scope.kind != "function" or scope.parent is not module.scopes.module:
        return False
    assert isinstance(scope.node, (ast.FunctionDef, ast.AsyncFunctionDef))
    if scope.node.decorator_list or script.interpreter.callers.get(scope):
        return False
    return scope.node.name not in mentioned_names(script) and not _can_be_looked_up(
        script, module, scope.node.name
    )


def _can_be_looked_up(script: ScriptModel, home: Module, name: str) -> bool:
    """Whether a function of a module can be found by a name built at run time: by `eval`, `getattr`, `globals`."""
    return _is_looked_up(script, lambda looking: looking is home or name in looking.scopes.module.locals)


def looks_up_functions(script: ScriptModel) -> bool:
    """Whether any function of the program can be found so."""
    return _is_looked_up(script, lambda looking: True)


def _is_looked_up(script: ScriptModel, knows: Callable[[Module], bool]) -> bool:
    """Whether a function is found by such a name, of those that the module which looks `knows`."""
    for module, call in ((m, c) for m in _own_trees(script) for c in m.tree.nodes(ast.Call)):
        called = call.func.id if isinstance(call.func, ast.Name) else ""
        if called == "exec":
            return True
        if called == "getattr" and not any(isinstance(a, ast.Constant) for a in call.args[1:2]):
            contained = script.values(call.args[0]) if call.args else set()
            if not contained or not all(isinstance(w, Entity) for w in contained):
                return True
        if called in ("eval", "globals", "locals"):
            looking = script.module_of(call) if module is script.module else module
            imports = looking.scopes.module.of_type(ast.Import, ast.ImportFrom)
            if knows(looking) or any(map(_brings_all, imports)):
                return True
    options = _options(script)
    return any(
        _may_hold_functions(script, node, options)
        for node in script.tree.nodes(ast.Attribute)
        if node.attr == "__dict__"
    )


def _brings_all(stmt: ast.Import | ast.ImportFrom) -> bool:
    return isinstance(stmt, ast.ImportFrom) and any(alias.name == "*" for alias in stmt.names)


def _is_live(
    script: ScriptModel,
    scope: Scope,
    candidates: set[Scope],
    live: set[Scope],
    mentioned: set[str],
    made: set[ast.ClassDef],
) -> bool:
    if scope.is_method:
        owner = scope.owner_class
        return owner is not None and owner in made and not _is_unused_factory(script, scope)
    if scope.parent is not None and scope.parent.kind == "function":
        return scope.parent in live
    if getattr(scope.node, "decorator_list", None) or scope.node.name in mentioned:  # type: ignore[union-attr]
        return True
    for module, call in script.interpreter.callers.get(scope, []):
        caller = module.scopes.of(call)
        while caller.kind == "class" and caller.parent is not None:
            caller = caller.parent
        if caller not in candidates or caller in live:
            return True
    return False


def _is_unused_factory(script: ScriptModel, scope: Scope) -> bool:
    """Whether a method makes objects of its class (`Net.from_pretrained`), and only the method itself has its name."""
    node = scope.node
    assert isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    if not any(isinstance(d, ast.Name) and d.id == "classmethod" for d in node.decorator_list):
        return False
    inside = set(walk(node))
    return not any(
        named.attr == node.name and named not in inside
        for module in _own_trees(script)
        for named in module.tree.nodes(ast.Attribute)
    )


def mentioned_names(script: ScriptModel) -> set[str]:
    """Names that are read other than to be called or derived from: functions that are passed as values."""
    found: set[str] = set()
    for module in _own_trees(script):
        calls = list(module.tree.nodes(ast.Call))
        called = {id(call.func) for call in calls}
        # `super(Derived, self)` is in the class itself.
        called |= {id(call.args[0]) for call in calls if call.args and dotted(call.func) == "super"}
        called |= {id(base) for cls in _derived_elsewhere(script, module) for base in cls.bases}
        for node in [*module.tree.nodes(ast.Name), *module.tree.nodes(ast.Attribute)]:
            if id(node) not in called and isinstance(node.ctx, ast.Load):
                found.add(node.id if isinstance(node, ast.Name) else node.attr)
    return found


def _derived_elsewhere(script: ScriptModel, module: Module) -> list[ast.ClassDef]:
    """The classes of a tree that are live as soon as their bases are: the script's may wait for others to make them."""
    classes = list(module.tree.nodes(ast.ClassDef))
    if module is not script.module:
        return classes
    return [cls for cls in classes if script.module_of(cls) is not script.module]


def _own_trees(script: ScriptModel) -> list[Module]:
    """One module for each tree: those that are converted share theirs."""
    return [script.module, *[m for m in script.program.modules.values() if m not in script.modules]]


def _made_classes(script: ScriptModel) -> set[ast.ClassDef]:
    """Classes with instances, and all of their ancestors; classes named otherwise than to be made count too."""
    mentioned = mentioned_names(script)
    found: set[ast.ClassDef] = set()
    for value in script.interpreter.entities.values():
        cls = value if isinstance(value, Class) and value.name in mentioned else None
        if isinstance(value, Entity) and value.cls is not None and isinstance(value.site, ast.Call):
            cls = value.cls
        for one in cls.ancestry() if cls is not None else []:
            assert isinstance(one.scope.node, ast.ClassDef)
            found.add(one.scope.node)
    return found


def _looks_up_names(script: ScriptModel) -> bool:
    """Whether functions are looked up by names that are built at run time: anything can be called then."""
    for call in script.tree.nodes(ast.Call):
        if isinstance(call.func, ast.Name) and call.func.id in ("getattr", "eval", "exec"):
            if not any(isinstance(a, ast.Constant) for a in call.args[1:2]):
                return True
        if (dotted(call.func) or "") in ("globals", "locals"):
            return True
    retained = [node for node in script.tree.nodes(ast.Attribute) if node.attr == "__dict__"]
    options = _options(script) if retained else set()
    return any(_may_hold_functions(script, node, options) for node in retained)


def _may_hold_functions(script: ScriptModel, node: ast.Attribute, options: set[str]) -> bool:
    """Whether functions can be taken from a `__dict__`: any of a module's, others where one is chosen."""
    owner = node.value.id if isinstance(node.value, ast.Name) else ""
    if owner and script.scope_of(node).imports(owner):
        return True
    if owner in options:
        return False
    parent = script.tree.parent(node)
    shown = isinstance(parent, ast.Call) and node in parent.args and dotted(parent.func) in _SHOWING
    filled = isinstance(parent, ast.Attribute) and parent.attr == "update"
    spread = isinstance(parent, ast.keyword) and parent.arg is None
    named = isinstance(parent, ast.Subscript) and isinstance(parent.slice, ast.Constant)
    return not (shown or filled or spread or named)


def _options(script: ScriptModel) -> set[str]:
    """Names of a command line's options: `args = parser.parse_args()` calls nothing by what is in it."""
    return {
        name
        for stmt in script.tree.nodes(ast.Assign)
        if isinstance(stmt.value, ast.Call) and getattr(stmt.value.func, "attr", "") == "parse_args"
        for target in stmt.targets
        for name in target_names(target)
    }
