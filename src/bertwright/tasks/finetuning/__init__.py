"""Fine-tuning of encoders for tasks."""
