"""What was found and done, for people and for programs: text, diff, JSON, HTML."""
