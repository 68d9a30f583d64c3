"""A small stand-in for NLTK."""
