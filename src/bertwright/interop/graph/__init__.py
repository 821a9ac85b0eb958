"""Models as traced graphs, which the ONNX and torch.export formats share."""
