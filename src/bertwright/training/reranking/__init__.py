"""Personalised re-ranking of lists of items (PRM, Pei et al. 2019)."""
