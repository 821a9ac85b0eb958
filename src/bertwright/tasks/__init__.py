"""A trained model to a solved task: formats, metrics, named tasks, fine-tuning."""
