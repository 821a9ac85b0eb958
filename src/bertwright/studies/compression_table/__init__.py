"""The table of the lectures on compression, with columns of our own beside what was published."""
