"""Fine-tuning against Transformers' Trainer: the same encoder, data and settings on either side."""
