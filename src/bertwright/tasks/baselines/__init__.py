"""Simple baselines of every task, fitted to the same training examples.

Reading order: ``baseline`` (the base class), ``frequency``, ``tf_idf``, ``linear`` (the baselines),
``fit_baselines`` (all for a task), ``comparison`` (with a model), ``storage``.
"""
