"""Data loading: shares of batches, loaders, random state."""
