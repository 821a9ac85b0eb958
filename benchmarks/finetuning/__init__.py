"""Fine-tuning against Transformers' Trainer, with the same encoder, data and settings."""
