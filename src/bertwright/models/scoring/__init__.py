"""Log-likelihoods of texts and tokens."""
