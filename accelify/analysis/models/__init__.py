"""Models: where they are stored, how they are wrapped, called, copied and inspected, and what changes their weights."""
