"""Plain questions about code that know nothing of torch: what binds, reaches, gives, tests and grows."""
