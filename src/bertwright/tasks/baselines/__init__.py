"""What a model has to beat: simple baselines of every task, fitted to the same training examples.

Reading order: ``baseline`` (what all have), ``frequencies``, ``words``, ``vectors`` (the
baselines), ``fitting`` (which a task has), ``comparing`` (a model beside them), ``storage``.
"""

from bertwright.tasks.baselines.baseline import Baseline
from bertwright.tasks.baselines.frequencies import majority_tag, tag_of_word

__all__ = ["Baseline", "majority_tag", "tag_of_word"]
