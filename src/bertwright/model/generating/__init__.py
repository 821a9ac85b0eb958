"""Text by a model's own choices.

Reading order: ``decoding`` (which piece is taken of those that may come), ``rows`` (texts that grow
at their end, and what a model says comes next), ``continuing`` (one piece after another),
``filling`` (hidden places behind a text), ``generate`` (which of the ways a model goes).
"""
