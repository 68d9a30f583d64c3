"""The questions that the engine asks of every value of a script, each with an algebra of its answers."""
