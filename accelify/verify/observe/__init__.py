"""Inside a run: what can be seen of it, written down as events. Imported by the processes of runs only."""
