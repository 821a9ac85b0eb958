"""bertwright: BERT and its family as recipes over a few independent axes."""

__version__ = "0.1.0"
