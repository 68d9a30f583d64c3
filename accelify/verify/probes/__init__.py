"""Demands that the engine cannot prove of a converted script, settled by looking at their places while it runs."""
