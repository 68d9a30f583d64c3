"""Losses: how they go by the samples of a batch, and what they carry from one batch to the next."""
