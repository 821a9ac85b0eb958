"""How places exchange information: one file per mixer."""
