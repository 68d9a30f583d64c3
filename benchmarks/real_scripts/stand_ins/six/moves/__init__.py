"""Modules that Python 2 had under other names."""

import queue
import urllib

__all__ = ["queue", "urllib"]
