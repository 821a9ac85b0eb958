"""Tests with random invalid inputs, full disks and kills: ``make fuzz``.

Everything is drawn from a seed; a finding is reproduced by its number.
"""
