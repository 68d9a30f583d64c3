"""What the engine does not prove of converted scripts, as findings beside those of the transforms."""

from accelify.proving.projects import BUDGET, entries_of, prove, validated

__all__ = ["BUDGET", "entries_of", "prove", "validated"]
