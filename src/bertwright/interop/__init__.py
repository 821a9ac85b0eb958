"""Our models and everyone's: formats that others read and write."""
