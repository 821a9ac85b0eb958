"""What a model loses without some of its attention heads."""
