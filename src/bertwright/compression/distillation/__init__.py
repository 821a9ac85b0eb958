"""Distillation into a smaller model, in pre-training and in fine-tuning."""
