"""The cost of quantization: sensitivity of individual modules, and sharpness of the loss."""
