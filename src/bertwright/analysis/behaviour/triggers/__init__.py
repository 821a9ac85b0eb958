"""Universal adversarial triggers, and the search for them."""
