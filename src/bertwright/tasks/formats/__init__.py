"""Files of examples: one file for each layout in which they come."""
