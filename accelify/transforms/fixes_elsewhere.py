"""Fixes in modules that are not converted."""

from __future__ import annotations

import ast
from typing import NamedTuple

from accelify.analysis.program import Module
from accelify.transforms.base import Rule
from accelify.writer.edits import Edit


class FixElsewhere(NamedTuple):
    """An edit in such a module: right for who calls it from elsewhere, too."""

    module: Module
    node: ast.expr
    edit: Edit
    rule: Rule
    message: str
