"""Which definition a name refers to."""

from __future__ import annotations

import ast

import pytest

from accelify.analysis.scopes import Scopes
from accelify.analysis.syntax import Tree

TEXT = """\
import a.b as c, d.e
total = 0

class K:
    kind = 1

    def method(this, x, *rest, key=1, **more):
        global total
        total = kind
        return [y for y in x]

    @staticmethod
    def free(w):
        def inner():
            nonlocal w
            print(w)
"""


def test_scopes() -> None:
    scopes = Scopes(Tree(TEXT))
    by_name = {s.name: s for s in scopes.all()}
    method, free, inner = by_name["K.method"], by_name["K.free"], by_name["K.free.inner"]
    assert scopes.module.locals == {"c", "d", "total", "K"}
    assert method.locals == {"this", "x", "rest", "key", "more", "y"}
    assert method.resolve("total") is scopes.module
    assert method.resolve("kind") is None, "a class body's names are not seen by its methods"
    assert by_name["K"].resolve("kind") is by_name["K"]
    assert inner.resolve("w") is free
    assert method.resolve("len") is None
    assert (method.self_name(), free.self_name(), inner.is_method) == ("this", None, False)
    assert method.positional() == ["this", "x"]
    assert [a.arg for a in method.parameters()] == ["this", "x", "rest", "key", "more"]
    assert inner.owner_class is by_name["K"].node
    assert {s.kind for s in scopes.functions()} == {"function"}


def test_a_global_that_only_a_function_assigns_is_the_module_s() -> None:
    text = "def f():\n    global a, b\n    a = 1\n    print(b)\n\ndef g():\n    return a\n"
    scopes = Scopes(Tree(text))
    by_name = {s.name: s for s in scopes.all()}
    assert by_name["g"].resolve("a") is scopes.module
    assert by_name["g"].resolve("b") is None
    assert by_name["f"].resolve("a") is scopes.module


def test_the_scope_of_a_node() -> None:
    tree = Tree("x = 1\ndef f():\n    y = 2\n")
    scopes = Scopes(tree)
    (function,) = tree.nodes(ast.FunctionDef)
    assert scopes.of(function) is scopes.module
    assert scopes.of(function.body[0]) is scopes.for_definition(function)


GATHERED = """\
class Trainer{bases}:
    def run():
        pass

    def fit(model, loader):
        {body}
{more}
"""


@pytest.mark.parametrize(
    ("bases", "body", "more", "own"),
    [
        ("", "pass", "", None),
        ("(object)", "pass", "Trainer.fit(a, b)", None),
        ("(Base)", "pass", "Trainer.fit(a, b)", None),
        ("", "pass", "    def show(self):\n        pass\n\nTrainer.fit(a, b)", None),
        ("", "pass", "Trainer()\nTrainer.fit(a, b)", None),
        # Nothing calls it, and what it is called with is used as an object of the class or not.
        ("(Base)", "model.loader", "", "model"),
        ("", "model.loader", "    def show(self):\n        pass", "model"),
        ("(Base)", "pass", "", None),
        ("", "pass", "Trainer().fit(b)", "model"),
        ("", "pass", "a = Trainer()\nTrainer.fit(a, b)\na.fit(b)", "model"),
        ("", "model.loader = loader", "Trainer.fit(a, b)", "model"),
    ],
)
def test_functions_of_a_class_that_are_called_by_its_name(
    bases: str, body: str, more: str, own: str | None
) -> None:
    scopes = Scopes(Tree(GATHERED.format(bases=bases, body=body, more=more)))
    by_name = {s.name: s for s in scopes.all()}
    assert by_name["Trainer.fit"].self_name() == own
    assert by_name["Trainer.run"].self_name() is None
