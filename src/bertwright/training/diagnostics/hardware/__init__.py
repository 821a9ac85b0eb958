"""Checks of the hardware and of compiled steps."""
