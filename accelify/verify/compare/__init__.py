"""Outside the runs: one run compared with another, aspect by aspect."""
