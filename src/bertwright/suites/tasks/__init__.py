"""Kinds of tasks in a suite. Importing this package registers all of them."""

from bertwright.suites.tasks import fine_tuning, pairs, probe, retrieval, similarity
from bertwright.suites.tasks.suite_task import PreparedTask, SuiteTask

__all__ = [
    "PreparedTask",
    "SuiteTask",
    "fine_tuning",
    "pairs",
    "probe",
    "retrieval",
    "similarity",
]
