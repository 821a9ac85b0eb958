"""Models as traced graphs, shared by the ONNX and the torch.export formats."""
