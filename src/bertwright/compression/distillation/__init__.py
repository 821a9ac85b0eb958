"""Distillation of a smaller model, in pre-training and in fine-tuning."""
