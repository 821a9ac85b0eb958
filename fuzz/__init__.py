"""What strangers' inputs, full disks and kills do to the program: run by hand, or by ``make fuzz``.

Everything is drawn from a seed, so that a finding can be had again by its number.
"""
