"""Training: one loop for everything that is trained, and what it is made of."""
