"""Models and texts whose answers are known, on which every analysis is checked."""
