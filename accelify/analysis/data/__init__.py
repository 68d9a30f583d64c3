"""Loaders and batches: which loader is which, where its batches go, what is drawn, and what is fetched."""
