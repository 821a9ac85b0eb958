"""What attention weights and hidden states can tell, and what they cannot."""
