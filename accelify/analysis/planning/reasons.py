"""Messages that say why a model or optimizer cannot be prepared."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

from accelify.analysis import knowledge as k
from accelify.analysis import values as v
from accelify.analysis.metrics.evaluation_loop import EvaluationLoop
from accelify.analysis.planning.anchors import node_of
from accelify.analysis.planning.placement import Placement
from accelify.analysis.scopes import Scope
from accelify.analysis.script import Holder, ScriptModel, is_in_model
from accelify.analysis.syntax import calls_in, dotted, target_names, walk
from accelify.analysis.values import Class, Entity

# Methods of trainers; `model.train()` takes nothing, or a constant.
_TRAINING = frozenset({"train", "fit", "train_epoch", "train_one_epoch"})
# What is called under such a name and set by a class that cannot be read is no method of it.
_MODEL_NAME = re.compile(
    r"_?(\w+_)?(model|net|network|net[DG]|backbone|generator|discriminator|actor|critic)"
)
# What a function calls of the model that it trains.
_OF_MODELS = ("train", "parameters", "named_parameters", "zero_grad")
_OUTSIDE = "convert the script that makes it"


class Blocker(NamedTuple):
    """A reason why the core edits of a script are not made."""

    code: str
    message: str
    node: ast.AST | None = None


class Reasons:
    """The words for what has no place to be prepared.

    Args:
        script: its model.
        placement: what looked for the places.
    """

    def __init__(self, script: ScriptModel, placement: Placement) -> None:
        self.script = script
        self.containers = placement.containers

    def whole_loaders(self, loaders: set[Entity], evaluations: list[EvaluationLoop]) -> str:
        """Why an evaluation loop needs its loaders whole: it also runs over some which stay whole."""
        first = min(loaders, key=Entity.place)
        made = self.script.tree.parent(first.site) if first.site is not None else None
        names = target_names(made.targets[0]) if isinstance(made, ast.Assign) else sorted(first.names)
        named = f"`{names[0]}`" if len(names) == 1 else "another loader"
        why = [e.problem for e in evaluations if e.problem and first in e.loaders and not e.fetches_one]
        because = f"another loop needs whole: {why[0]}" if why else "stays whole"
        return f"it also runs over {named}, which {because}"

    def no_loop(self) -> Blocker:
        """Why no training loop was found: there is none, or it comes by a name that only the run knows."""
        script = self.script
        unknown = [call for call, name in script.module.named.items() if name is None]
        called = {c.func.attr for c in script.calls() if isinstance(c.func, ast.Attribute) and _given(c)}
        contained = script.interpreter.entities.values()
        made = {t.kind for t in contained if isinstance(t, Entity) and t.module is script.module}
        if unknown and (v.OPTIMIZER in made or called & _TRAINING):
            line = script.tree.locate(script.tree.start(unknown[0]))[1]
            message = (
                f"its training loop may be in the module that line {line} imports by a name which is not known here: "
                "write that import out, or name a module that is there as the option's default"
            )
            return Blocker("ACC009", message, unknown[0])
        if (lost := script.program.unread_loop()) is not None:
            return Blocker("ACC008", f"its training loop seems to be in {lost}, which does not parse: fix it")
        for call in script.calls():
            taker = self._takes_optimizer(call)
            if taker is not None:
                line = script.tree.place(call)[1]
                message = (
                    f"its training loop may be in `{taker}`, which line {line} hands the optimizer and which is not "
                    "found in this project: put its folder on sys.path in this file or on PYTHONPATH, or convert it "
                    "where it is"
                )
                return Blocker("ACC009", message, call)
        return Blocker("ACC002", "it has no training loop (no call of backward)")

    def _takes_optimizer(self, call: ast.Call) -> str | None:
        """What is called with an optimizer and is neither of the project nor of torch, by its qualified name."""
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        name = self.script.qualname(call.func) if given else None
        if (
            name is None
            or name.split(".")[0] in ("torch", "builtins", "transformers")
            or k.is_scheduler_class(name)
        ):
            return None
        return name if any(self.script.is_a(one, v.OPTIMIZER) for one in given) else None

    def no_model(self) -> Blocker:
        """Why no model was found that is trained."""
        for backward in self.script.backwards:
            owner = backward.scope.owner_class
            cls = self.script.interpreter.entities.get((owner, "class"))
            if isinstance(cls, Class) and self._is_made(cls):
                continue
            if owner is not None and is_in_model(self.script, backward.scope):
                message = f"`{owner.name}` trains itself, and no `{owner.name}` is made in this file"
                return Blocker("ACC004", f"{message}; convert the script that makes one", backward.call)
        first = self.script.backwards[0]
        scope = node_of(self.script, first.scope)
        if self._trains_tensors():
            return self._tensors()
        from_base = self._run_from_base(first.scope)
        if from_base is not None:
            return from_base
        if scope.kind == "function":
            called = {(dotted(c.func) or "").removesuffix(".forward") for c in calls_in(scope.node)}
            called |= {
                dotted(stmt.value.args[0]) or ""
                for stmt in walk(scope.node)
                if isinstance(stmt, ast.Assign) and isinstance(stmt.value, ast.Call) and stmt.value.args
                if self.script.qualname(stmt.value.func) == "copy.deepcopy"
                if any(dotted(target) in called for target in stmt.targets)
            }
            for argument in scope.parameters():
                asked = {argument.arg, *(f"{argument.arg}.{name}" for name in _OF_MODELS)}
                if asked & called and not k.CRITERION_NAME.search(argument.arg):
                    return self._handed_over("model", argument.arg, scope.node)
        unread = self._derived_from_unread()
        if unread is not None:
            return unread
        return Blocker(
            "ACC003",
            "no model was found whose parameters are trained here: it trains bare tensors, or the model cannot be seen",
            first.call,
        )

    def _derived_from_unread(self) -> Blocker | None:
        """The reason, where an optimizer gets the parameters of an object whose base class is not found."""
        sites = [
            o.site for o in sorted(self.script.optimizers, key=Entity.place) if isinstance(o.site, ast.Call)
        ]
        own = [site for site in sites if self.script.tree.parent(site) is not None]
        for call in (n for site in own for n in calls_in(site)):
            if not isinstance(call.func, ast.Attribute) or not call.func.attr.endswith("parameters"):
                continue
            contained = self.script.values(call.func.value)
            classes = {w.cls for w in contained if isinstance(w, Entity) and w.cls is not None}
            for cls in sorted(classes, key=v.order_of):
                base = self._unread_base(cls)
                if base is None:
                    continue
                library, _, name = base.rpartition(".")
                file = cls.module.path.name if cls.module.path is not None else "this file"
                message = (
                    f"`{cls.name}` ({file}) is derived from `{name}` of `{library}`, which is not found in this "
                    "project, so that it is not known for a model: put its folder on sys.path in this file or on "
                    "PYTHONPATH, or import it by the name that it has from here"
                )
                return Blocker("ACC003", message, call)
        return None

    def _trains_tensors(self) -> bool:
        optimizers = self.script.optimizers
        return bool(optimizers) and all(map(self.script.takes_tensors, optimizers))

    def _tensors(self) -> Blocker:
        message = (
            "no model is trained here: the optimizer is given tensors, and there is nothing to share out"
        )
        return Blocker("ACC003", message, self.script.backwards[0].call)

    def _handed_over(self, kind: str, name: str, function: Any) -> Blocker:
        """Who passes a model or optimizer to a function: a caller that can be seen, or one that cannot."""
        own = next((s for s in self.script.functions() if s.node is function), None)
        calls = self.script.interpreter.callers.get(own, []) if own is not None else []
        # `train(1, 50)`, which some write to try a file out, passes no model.
        calls = [
            (module, call)
            for module, call in calls
            if call.keywords or not call.args or not all(isinstance(a, ast.Constant) for a in call.args)
        ]
        if not calls:
            message = f"the {kind} `{name}` is handed to `{function.name}` by a caller outside of this file"
            return Blocker("ACC004", f"{message}; {_OUTSIDE}", function)
        module, call = calls[0]
        path, line, _ = module.tree.place(call)
        where = f"line {line}" if module is self.script.module else f"{Path(path).name}, line {line}"
        seen = f"what `{function.name}` is handed as `{name}` ({where}) is not seen to be "
        message = f"{seen}{'an' if kind[0] in 'aeiou' else 'a'} {kind}; name its class there"
        return Blocker("ACC004", message, call if module in self.script.modules else function)

    def homeless(self, entity: Entity, kind: str) -> Blocker:
        """Why an `Entity` without a name cannot be prepared."""
        if self._trains_tensors():
            return self._tensors()
        name = next(iter(sorted(entity.names)), kind)
        if isinstance(entity.site, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return self._handed_over(kind, name, entity.site)
        root = self._root(entity)
        if isinstance(root.site, (ast.FunctionDef, ast.AsyncFunctionDef)):
            what = next(iter(sorted(root.names)), "an argument")
            message = f"the {kind} `{name}` comes from `{what}`, which a caller outside of this file hands to"
            return Blocker("ACC004", f"{message} `{root.site.name}`; {_OUTSIDE}", root.site)
        converted = root.cls is not None and root.cls.module in self.script.modules
        if root is not entity and root.qualname and isinstance(root.site, ast.Call) and not converted:
            made = root.qualname.rsplit(".", 1)[-1]
            message = f"the {kind} `{name}` is stored by an object of `{made}`"
            return Blocker("ACC005", f"{message}, whose code is not converted with this file", root.site)
        owner = self._set_outside(entity)
        if owner is not None:
            unread = self._unread_base(owner)
            if unread is not None:
                return self._set_by_base(owner, name, unread)
            message = f"the {kind} `{name}` of `{owner.name}` is set outside of this file, by a caller or a subclass"
            return Blocker("ACC004", f"{message}; {_OUTSIDE}", None)
        holders = self.script.holders_of(entity)
        part = next((h for h in holders if h.cls is not None and self._is_model(h)), None)
        if part is not None and part.cls is not None:
            trainer = part.cls.name
            message = f"`{trainer}` trains its own {kind} `{part.name}`"
            if self._is_made(part.cls):
                message += ", a part of it, by itself: it can only be prepared with all of it"
                return Blocker("ACC005", message, entity.site)
            message += f", and no `{trainer}` is made in this file"
            return Blocker("ACC004", f"{message}; convert the script that makes one", entity.site)
        local = next((h for h in holders if h.cls is None and self._is_inside_model(h)), None)
        if local is not None and local.scope is not None:
            owned = local.scope.owner_class
            where = owned.name if owned is not None else "a module"
            message = f"the {kind} `{local.name}` is made and trained inside a method of the module `{where}`"
            return Blocker("ACC005", f"{message}, so it cannot be prepared", entity.site)
        if isinstance(entity.site, ast.Call) and entity.module not in self.script.modules and not holders:
            file = (
                entity.module.path.name
                if entity.module is not None and entity.module.path
                else "another file"
            )
            base = self._made_by_a_base(entity)
            if base is not None:
                message = (
                    f"the {kind} `{name}` is made in {file} by `{base}`, a base class that is not converted"
                )
                return Blocker("ACC005", f"{message} with this file; put it into this file", entity.site)
            message = (
                f"the {kind} `{name}` is made in {file} and stored in no variable or attribute of this file"
            )
            return Blocker("ACC005", f"{message}, so it cannot be prepared here", entity.site)
        retained = self.containers.holders_of(entity)
        if retained:
            # Under unknown keys it can overwrite the names of other entries.
            name = self._entry(entity) or name
            message = f"the {kind} `{name}` is stored in `{retained[0].name}`, whose elements are not all of one kind"
            if self.containers.form(retained[0], kind) is not None:
                several = len(self.containers.makings(retained[0])) > 1
                how = (
                    "which several functions fill"
                    if several
                    else "which is filled in a way that is not followed"
                )
                message = f"the {kind} `{name}` is stored in `{retained[0].name}`, {how}"
            return Blocker("ACC005", f"{message}: they cannot be prepared one by one", entity.site)
        return Blocker(
            "ACC005",
            f"the {kind} `{name}` is not stored in a variable or attribute of this file, so it cannot be prepared here",
            entity.site if isinstance(entity.site, ast.AST) else self.script.backwards[0].call,
        )

    def _entry(self, entity: Entity) -> str | None:
        """How the entry is written for which an `Entity` is made: `conf["optimizer"] = SGD(...)`."""
        tree = self.script.tree
        stmt = tree.parent(entity.site) if isinstance(entity.site, ast.Call) else None
        if entity.module not in self.script.modules or not isinstance(stmt, ast.Assign):
            return None
        entries = [target for target in stmt.targets if isinstance(target, ast.Subscript)]
        return tree.segment(entries[0]) if entries else None

    def _root(self, entity: Entity) -> Entity:
        """What an `Entity` was taken out of, as far as nothing is known of that either."""
        seen = {entity}
        while True:
            wholes = entity.link("whole") - seen
            if not wholes:
                return entity
            entity = min(wholes, key=lambda t: sorted(t.names))
            seen.add(entity)

    def _made_by_a_base(self, entity: Entity) -> str | None:
        """The base class of another module that makes an `Entity` for a class of this file."""
        module = entity.module
        made = (
            module.scopes.of(entity.site).owner_class if module and isinstance(entity.site, ast.AST) else None
        )
        for cls in self.script.interpreter.classes() if made is not None else ():
            if cls.module in self.script.modules and any(a.scope.node is made for a in cls.ancestry()):
                return made.name if made is not None else None
        return None

    def _set_outside(self, entity: Entity) -> Class | None:
        """The class from whose `self` an `Entity` is read, where nothing in the program sets that attribute."""
        owners = [
            w.cls
            for w in entity.link("whole")
            if w.cls is not None and (w is w.cls.instance or w.cls.module in self.script.modules)
        ]
        return min(owners, key=lambda cls: cls.name, default=None)

    def _unread_base(self, cls: Class) -> str | None:
        """The base class of a library, other than torch and Python's, that may set attributes of a class."""
        known = sys.stdlib_module_names | {"torch", "builtins"}
        bases = (base for base in cls.external_bases() if "." in base)
        return min((base for base in bases if base.partition(".")[0] not in known), default=None)

    def _set_by_base(self, cls: Class, name: str, base: str) -> Blocker:
        library, _, made = base.rpartition(".")
        message = (
            f"`self.{name}` of `{cls.name}` is set by no class that can be read, so by `{made}`, its base class of "
            f"{library}; set it in `{cls.name}`, or put `{made}` beside this file"
        )
        return Blocker("ACC005", message, cls.scope.node if cls.module in self.script.modules else None)

    def _run_from_base(self, function: Scope) -> Blocker | None:
        """The reason, where a method runs what only a base class of a library can have set: `self.net(x)`."""
        own = function.self_name()
        cls = next(
            (c for c in self.script.interpreter.classes() if c.scope.node is function.owner_class), None
        )
        unread = self._unread_base(cls) if cls is not None and own is not None else None
        if cls is None or unread is None:
            return None
        for name in (dotted(node.func) or "" for node in function.calls):
            holder, _, attribute = name.partition(".")
            if holder == own and _MODEL_NAME.fullmatch(attribute) and cls.method(attribute) is None:
                if not any(one.attributes.get(attribute) for one in cls.ancestry()):
                    return self._set_by_base(cls, attribute, unread)
        return None

    def _is_made(self, cls: Class) -> bool:
        """Whether the files that are converted make an object of a class, or of one derived from it."""
        made = {
            entity.cls for entity in self.script.interpreter.entities.values() if self._is_made_here(entity)
        }
        return any(one is not None and cls in one.ancestry() for one in made)

    def _is_made_here(self, entity: object) -> TypeGuard[Entity]:
        return (
            isinstance(entity, Entity)
            and entity.cls is not None
            and isinstance(entity.site, ast.Call)
            and entity.module in self.script.modules
        )

    def _is_model(self, holder: Holder) -> bool:
        return holder.cls is not None and self.script.interpreter.kind_of_class(holder.cls) == v.MODEL

    def _is_inside_model(self, holder: Holder) -> bool:
        return (
            holder.scope is not None
            and holder.scope.kind == "function"
            and is_in_model(self.script, holder.scope)
        )


def _given(call: ast.Call) -> bool:
    """Whether a call passes anything but constants."""
    return any(not isinstance(a, ast.Constant) for a in [*call.args, *[kw.value for kw in call.keywords]])
