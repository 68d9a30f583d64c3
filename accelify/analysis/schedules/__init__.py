"""Steps and what goes by them: schedulers, learning rates, accumulation, precision, runs that follow each other."""
