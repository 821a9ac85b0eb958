"""Speed of pre-training steps."""
