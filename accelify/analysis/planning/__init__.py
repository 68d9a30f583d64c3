"""Where a conversion makes its edits: the place of the Accelerator, its arguments, prepare, and what prevents them."""
