"""Models: how they are kept, wrapped, called, copied and looked into, and what happens to their weights."""
