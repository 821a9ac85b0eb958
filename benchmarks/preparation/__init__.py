"""Speed of text preparation."""
