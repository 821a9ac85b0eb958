"""A table of published compressed models, with counts of our recipes and times measured here."""
