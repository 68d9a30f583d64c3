"""What the values of a script are: an abstract run over all its modules, with a heap of objects."""
