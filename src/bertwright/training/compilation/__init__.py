"""Compiled training steps, verified against uncompiled ones.

A run with a fixed number of steps compiles before its first step. With a time budget training
starts uncompiled while a second process compiles. Either way the first compiled step of every
variant is compared with the uncompiled one before it is used.
"""
