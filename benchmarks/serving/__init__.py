"""Server under load: throughput relative to the model, and outcomes of requests."""
