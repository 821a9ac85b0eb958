"""Language modelling heads."""
