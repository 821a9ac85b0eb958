"""Recipes for distillation in pre-training."""
