"""Published ways to make a model small, a file each."""
