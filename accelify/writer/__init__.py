"""Structural edits: recorded at nodes of the tree that was read, made by libcst in one copy of the paths they change.

`accelify.writer.edits` has the verbs and needs no libcst; `accelify.writer.writing` applies them.
"""
