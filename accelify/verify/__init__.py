"""Proof that a conversion keeps the losses: run before and after, on one process and on several, and compare.

Nothing here imports torch but what runs inside the processes that are started (`child`, `recorder`, `randomness`).
"""

NO_TORCH = "torch is not installed, and verify runs the script"
"""The message where nothing can be run; here, since the other modules need the runtime, which needs torch."""
