"""What training changes in a model, and how fine-tuning depends on it."""
