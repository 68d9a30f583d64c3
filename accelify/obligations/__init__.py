"""Sinks of a script, what each requires, and the proof or the reason why there is none."""

from accelify.obligations.obligation import Obligation, Status
from accelify.obligations.validating import Validation, validate

__all__ = ["Obligation", "Status", "Validation", "validate"]
