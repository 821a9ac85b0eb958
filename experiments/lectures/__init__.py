"""The table of what the source lectures hold, with where it is in bertwright and its results."""
