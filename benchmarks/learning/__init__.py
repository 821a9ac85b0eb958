"""Loss after some minutes: ``pretrain`` against the best of a grid of Transformers' Trainer.

Reading order: ``arms`` (the trainings), ``stock`` (models of Transformers and their optimisers),
``trainer`` (the Trainer with a time limit), ``compare`` (runs the arms and keeps their results),
``report`` (differences with intervals).
"""
