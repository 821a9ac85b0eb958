"""Data of tasks: splits of files and examples."""
