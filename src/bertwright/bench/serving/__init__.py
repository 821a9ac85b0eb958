"""A server under load: how much of the model's speed is left, and what becomes of requests."""
