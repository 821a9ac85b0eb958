"""The cost of quantization: sensitivity of single modules, and the sharpness of the loss."""
