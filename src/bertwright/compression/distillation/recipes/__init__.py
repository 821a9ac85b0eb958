"""Recipes of distillation in pre-training."""
