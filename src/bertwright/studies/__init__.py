"""Experiments that compare recipes on tasks, and their results."""
