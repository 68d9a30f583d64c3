"""ACC410: a device that another module keeps for the script, by an option that no longer counts."""

from __future__ import annotations

ENV = """
_device = None

def set_device(dev):
    global _device
    {keep}
def get_device():
    return _device
"""
