"""Sample text from the documentation of installed packages."""
