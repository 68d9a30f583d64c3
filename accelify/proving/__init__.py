"""What the engine does not prove of scripts, converted ones and others, as findings beside those of the transforms."""

from accelify.proving.checked import checked
from accelify.proving.projects import BUDGET, entries_of, prove, settled, validated

__all__ = ["BUDGET", "checked", "entries_of", "prove", "settled", "validated"]
