"""What the scripts of these tests say."""

# Ranks share one output, and Python without a buffer writes the words of `print` one by one: theirs would mix.
SAY = """\
import os
def say(*words):
    os.write(1, (" ".join(map(str, words)) + chr(10)).encode())
"""
