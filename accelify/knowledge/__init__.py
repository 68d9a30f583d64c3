"""What accelify knows of functions of libraries, as data: one row a function in `tables/`, and the user's rows."""

from accelify.knowledge.row import EFFECTS, KINDS, TRANSFERS, Argument, Row, RowError
from accelify.knowledge.rows import Knowledge

__all__ = ["EFFECTS", "KINDS", "TRANSFERS", "Argument", "Knowledge", "Row", "RowError"]
