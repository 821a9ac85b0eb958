"""The training loop shared by pre-training and fine-tuning, and its parts."""
