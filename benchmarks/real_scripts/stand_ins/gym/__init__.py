"""A small stand-in for gym from 0.26 on, whose environments answer as Gymnasium's do."""

from gymnasium import Box, Discrete, Env, make, spaces

__all__ = ["Box", "Discrete", "Env", "make", "spaces"]
