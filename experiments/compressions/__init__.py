"""Checks of the compression methods on toy models.

Reading order: ``check`` (the interface), ``toy_models`` (what all are checked on), ``checks`` (one
file for each), ``run_checks``, ``page``.
"""
