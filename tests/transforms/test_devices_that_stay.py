"""ACC410: a device that another module keeps for the script, by an option that no longer counts."""

from __future__ import annotations
