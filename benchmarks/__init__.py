"""Benchmarks against other libraries: speed, scores, and the loss after some minutes.

``speed_commands`` times training steps, embedding, preparation and serving in interleaved rounds;
``score_commands`` trains models and keeps their scores in a folder.
"""
