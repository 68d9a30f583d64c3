"""What carries the Accelerator for a piece of code: a function, the class of a method, or the module."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis.program import Module
from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.statements.headers import evaluating_scope
from accelify.analysis.syntax import dotted
from accelify.analysis.values import INSTANCE, Class, Entity

# Whose objects are made of the arguments, which `__init__` only sees afterwards.
_MADE_EARLY = frozenset(
    """torch.Tensor torch.FloatTensor torch.autograd.Variable torch.nn.Parameter torch.nn.parameter.Parameter
    numpy.ndarray typing.NamedTuple torch.nn.utils.rnn.PackedSequence pathlib.Path pathlib.PurePath pathlib.PosixPath
    datetime.datetime datetime.date datetime.timedelta""".split()
)

_OF_PYTHON = frozenset("tuple str bytes int float complex frozenset".split())


def node_of(script: ScriptModel, scope: Scope) -> Scope:
    """What carries the accelerator for a scope: its outermost function, the class of a method, or the module.

    A static or class method has no object to store it in, and gets it as a parameter.
    """
    current = scope
    while current.kind == "function" and current.parent is not None and current.parent.kind == "function":
        current = current.parent
    if current.has_object and current.parent is not None:
        return _made_by(script, current.parent)
    return current


def caller_of(script: ScriptModel, call: ast.Call) -> Scope:
    """What carries the accelerator to a call: for one in a default, what is around its function."""
    return node_of(script, evaluating_scope(script, call))


def _made_by(script: ScriptModel, cls: Scope) -> Scope:
    """The class whose `__init__` makes the objects of a class: it, or the first of its bases that has one."""
    if init_of(script, cls) is not None:
        return cls
    for base in class_value(script, cls).ancestry()[1:]:
        if init_of(script, base.scope) is not None:
            return base.scope if base.module in script.modules else cls
    return cls


def bases_elsewhere(script: ScriptModel, home: Scope) -> list[Module]:
    """The module, not converted with the script so far, whose base makes the objects of a class without `__init__`."""
    bases = class_value(script, home).ancestry()[1:] if home.kind == "class" else []
    modules = [base.module for base in bases if init_of(script, base.scope) is not None][:1]
    return [module for module in modules if module.path is not None and module not in script.modules]


def init_of(script: ScriptModel, cls: Scope) -> Scope | None:
    """The `__init__` that a class defines itself; None where it has none.

    Of classes that are made without one, bases included, `initialize` is what they are called with instead:
    `model = Model(); model.initialize(options)`.
    """
    own = _method(cls, "__init__")
    if own is not None:
        return own
    late = _method(cls, "initialize")
    if (
        late is None
        or cls.kind != "class"
        or any(_method(c.scope, "__init__") for c in class_value(script, cls).ancestry())
    ):
        return None
    return late


def function_of(script: ScriptModel, home: Scope) -> Scope:
    """What takes the parameter: a function itself, of a class what makes its objects."""
    return (init_of(script, home) or home) if home.kind == "class" else home


def _method(cls: Scope, name: str) -> Scope | None:
    return next(
        (s for n, s in cls.children.items() if isinstance(n, ast.FunctionDef) and n.name == name), None
    )


def class_value(script: ScriptModel, scope: Scope) -> Class:
    """The class that a scope belongs to."""
    found = script.interpreter.entities[(scope.node, "class")]
    assert isinstance(found, Class)
    return found


def is_plain_class(script: ScriptModel, scope: Scope) -> bool:
    """Whether the script defines a class and torch no base of it: no module, dataset, optimizer."""
    return script.interpreter.kind_of_class(class_value(script, scope)) == INSTANCE


def made_instead(script: ScriptModel, home: Scope) -> list[Scope]:
    """The classes that are derived from one and have an `__init__` of their own, which does not call its."""
    if home.kind != "class":
        return []
    cls, every = class_value(script, home), script.interpreter.classes()
    derived = [
        one for one in every if one is not cls and cls in one.ancestry() and one.module in script.modules
    ]
    return [one.scope for one in derived if init_of(script, one.scope) is not None]


def why_not_stored(script: ScriptModel, home: Scope) -> str:
    """Why the objects of a class can take no Accelerator as an argument, or store none; "" where they can."""
    if _takes_arguments_early(class_value(script, home)):
        return "takes what it is made of before its `__init__` does"
    read = next(filter(lambda whole: _may_be(script, whole, home), _wholes(script)), None)
    if read is None:
        return ""
    line = script.tree.line_of(read)
    return f"has all its attributes read in line {line}, and the Accelerator would be among them"


def _wholes(script: ScriptModel) -> Iterator[ast.expr]:
    """The objects of which all attributes are read: `vars(x)`, `x.__dict__.items()`."""
    tree = script.tree
    for node in tree.nodes(ast.Attribute) if tree.mentions(b"__dict__") else ():
        if node.attr == "__dict__" and isinstance(node.ctx, ast.Load):
            parent = tree.parent(node)
            written = isinstance(parent, ast.Attribute) and parent.attr in (
                "update",
                "get",
                "pop",
                "setdefault",
            )
            if not (written or isinstance(parent, ast.Subscript)):
                yield node.value
    for call in tree.nodes(ast.Call) if tree.mentions(b"vars(") else ():
        if dotted(call.func) == "vars" and len(call.args) == 1:
            yield call.args[0]


def _may_be(script: ScriptModel, node: ast.expr, home: Scope) -> bool:
    return any(
        isinstance(one, Entity) and one.cls is not None and home in [cls.scope for cls in one.cls.ancestry()]
        for one in script.values(node)
    )


def _takes_arguments_early(cls: Class) -> bool:
    """Whether the objects of a class are made by a `__new__` that takes the arguments of `__init__`, and no more.

    `class Variable(autograd.Variable)`, `class Row(tuple)`, a class with `__new__(cls, size)`.
    """
    if cls.external_bases() & _MADE_EARLY or any(map(_is_of_python, cls.ancestry())):
        return True
    own = cls.method("__new__")
    arguments = getattr(own[1].node, "args", None) if own is not None else None
    return arguments is not None and arguments.vararg is None


def _is_of_python(cls: Class) -> bool:
    """`class Row(tuple)`, `class Pair(namedtuple("Pair", "a b"))`."""
    bases = cls.scope.node.bases if isinstance(cls.scope.node, ast.ClassDef) else []
    names = (dotted(base.func if isinstance(base, ast.Call) else base) or "" for base in bases)
    return any(name in _OF_PYTHON or name.rpartition(".")[2] == "namedtuple" for name in names)
