"""Quotes of what is put into an f-string, which up to Python 3.11 must not have those of the string around it."""

from __future__ import annotations

from typing import Any

import libcst as cst


def requoted(node: Any, taken: frozenset[str]) -> Any:
    """An expression whose strings have none of the quotes that the f-strings around it have.

    A string that could only be written with such a quote stays as it is; what is written is compiled before it is used.
    """
    free = [quote for quote in ("'", '"') if quote not in taken]
    return node.visit(_Requoting(free[0], taken)) if free and taken else node


class _Requoting(cst.CSTTransformer):
    def __init__(self, quote: str, taken: frozenset[str]) -> None:
        super().__init__()
        self.quote = quote
        self.taken = taken

    def leave_SimpleString(self, original_node: cst.SimpleString, updated_node: cst.SimpleString) -> Any:
        text = updated_node.raw_value
        if updated_node.quote not in self.taken or self.quote in text or "\\" in text:
            return updated_node
        return updated_node.with_changes(value=f"{updated_node.prefix}{self.quote}{text}{self.quote}")
