"""Compiled steps: whether they repay, and that they are never trusted unseen.

A run with a number of steps compiles before its first step. Under a budget of time training begins
uncompiled, and a second process compiles beside it. Either way the first compiled step of every
kind is compared with the uncompiled one before it counts.
"""
