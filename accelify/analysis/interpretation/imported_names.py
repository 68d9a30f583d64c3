"""The part of the interpreter that follows imports: by name, with a star, out of the project and out of libraries."""

from __future__ import annotations

import ast
import builtins

from accelify.analysis import knowledge as k
from accelify.analysis.interpretation.state import State
from accelify.analysis.program import Module, absolute_name
from accelify.analysis.scopes import Scope
from accelify.analysis.values import Imported, Values

_DEEPEST_NAME = 10
# Of whose names something is known, by whatever import they come.
_KNOWN_LIBRARIES = frozenset({"torch", "torchvision", "torchtext", "torch_geometric", "monai", "tqdm"})


class ImportedNames(State):
    """What names represent that come from elsewhere."""

    def _run_import(self, module: Module, scope: Scope, node: ast.Import) -> None:
        for alias in node.names:
            if alias.asname:
                self.bind(scope, alias.asname, self._imported(module, alias.name))
            else:
                head = alias.name.split(".")[0]
                self.bind(scope, head, {self.entities.setdefault(("import", head), Imported(head))})

    def _run_import_from(self, module: Module, scope: Scope, node: ast.ImportFrom) -> None:
        base = absolute_name(node, module.package)
        if base is None:
            return
        for alias in node.names:
            if alias.name == "*":
                target = module.imports.get(base)
                stars = self._star_imports.setdefault(module, [])
                if target is not None and target not in stars:
                    stars.append(target)
                    self.changed = True
                    self.reads.nothing_holds()
                libraries = self._star_libraries.setdefault(module, [])
                if target is None and base.split(".")[0] in _KNOWN_LIBRARIES and base not in libraries:
                    libraries.append(base)
                    self.changed = True
                    self.reads.nothing_holds()
                continue
            name = f"{base}.{alias.name}" if base else alias.name
            self.bind(scope, alias.asname or alias.name, self._imported(module, name))

    def _imported(self, module: Module, name: str) -> Values:
        """What a dotted name of a library or of the project represents."""
        known = self._of_libraries.get((module, name))
        if known is not None:
            return known
        # A package that imports its modules by name can lead back to itself for ever.
        if name in self._resolving or name.count(".") > _DEEPEST_NAME:
            return {self.entities.setdefault(("import", name), Imported(name))}
        self._resolving.add(name)
        try:
            return self._resolve_import(module, name)
        finally:
            self._resolving.discard(name)

    def _resolve_import(self, module: Module, name: str) -> Values:
        parts = name.split(".")
        ours, head = False, f"{name}."
        for cut in range(len(parts), 0, -1):
            head = head.rpartition(".")[0]
            target = module.imports.get(head) or self.program.modules.get(head)
            if target is None or target is self.program.entry:
                continue
            if cut == len(parts) and self.program.is_rebound(name):
                continue
            ours = True
            values: Values = set()
            if cut == len(parts):
                values = {self.entities.setdefault((target, name), Imported(name))}
            else:
                values = self.lookup(target, target.scopes.module, parts[cut])
                for part in parts[cut + 1 :]:
                    values = {w for value in values for w in self.attribute(value, part, target)}
            if values:
                return values
            if not self.settled():
                return set()  # its module may not have been gone through yet
        found: Values = {self.entities.setdefault(("import", name), Imported(name))}
        if not ours:
            self._of_libraries[(module, name)] = found
        return found

    def _from_libraries(self, module: Module, name: str) -> Values:
        """A name that nothing of the program gives, and that one library may which is imported with a star."""
        libraries = [known for known in self._star_libraries.get(module, ()) if k.can_bring(known, name)]
        if len(libraries) != 1 or name.startswith("_") or hasattr(builtins, name):
            return set()
        return self._imported(module, f"{libraries[0]}.{name}")

    def _from_stars(self, module: Module, name: str, seen: set[Module]) -> Values:
        """What a name holds that comes through `from other import *`, which passes on what came to it in that way."""
        for other in self._star_imports.get(module, ()):
            if other in seen:
                continue
            found = self.variable(other.scopes.module, name)
            if found:
                return found
            found = self._from_stars(other, name, seen | {other})
            if found:
                return found
        return set()
