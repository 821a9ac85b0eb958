"""The machine: what it is, how fast it computes, its compiler, and how it hands out memory.

Results do not depend on this package; speed does, and what a run writes down about its machine.
"""
