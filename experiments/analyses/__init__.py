"""Models and texts with known results, on which every analysis is checked."""
