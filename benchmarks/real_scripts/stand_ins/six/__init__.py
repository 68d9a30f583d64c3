"""A small stand-in for six on Python 3."""
