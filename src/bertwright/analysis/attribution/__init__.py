"""Attribution of predictions and hidden states to input tokens, by gradients and attention."""
