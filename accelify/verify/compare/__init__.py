"""Outside the runs: one run held against another, aspect by aspect."""
