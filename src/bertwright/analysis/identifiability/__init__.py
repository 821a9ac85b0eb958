"""What attention weights and hidden states can identify, and what they cannot."""
