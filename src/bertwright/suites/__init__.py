"""Evaluation suites: many tasks, several models and simple baselines in one report.

A suite is a YAML file that names tasks with their files below a data folder; ``standard.yaml`` is
the default. Reading order: ``tasks`` (what a task is, one module for each kind), ``suite`` (a file
of tasks), ``word_vectors`` (the baseline that is trained), ``runner`` (predictions, each computed
once), ``report`` (scores, intervals and differences), ``page`` (the report as HTML), ``mteb`` (the
same tasks and models in the library of that name).
"""
