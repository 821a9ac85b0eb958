"""Inputs, results, claims, plots and the runner, shared by all analyses."""
