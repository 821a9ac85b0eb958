"""Reporters that log and save the metrics of a run."""
