"""Mutation tests: change the code in small ways, and count what the tests notice."""
