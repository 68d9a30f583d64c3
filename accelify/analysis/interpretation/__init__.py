"""The abstract interpreter: which values the names of a program can hold."""
