"""Model families, one module per stock architecture."""
