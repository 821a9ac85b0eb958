"""Published methods to make a model small, one file each."""
