"""The modules of a project: where they are found, what they hand out by name, and which code is reached at all."""
