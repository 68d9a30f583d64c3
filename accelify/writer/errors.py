"""What is raised where an edit cannot be made."""

from __future__ import annotations

from typing import Any


class EditError(Exception):
    """An edit that cannot be made here, or that collides with another one.

    `edits` are the two that collide, where it is known which.
    """

    def __init__(self, message: str, edits: tuple[Any, ...] = ()) -> None:
        super().__init__(message)
        self.edits = edits
