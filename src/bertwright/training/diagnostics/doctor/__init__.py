"""The doctor: find common causes of failed training before training.

Reading order: ``diagnostic`` (the result of a check); ``data_checks`` with ``repetition`` (the
text); ``recipe_checks`` (the recipe, without running it); ``batch_samples``, ``target_checks`` and
``isolation`` (real batches); ``trial`` with ``memorisation``, ``range_test`` and ``short_run`` (a
few minutes of training); ``report`` (everything together).
"""

from bertwright.training.diagnostics.doctor.diagnostic import Diagnostic
from bertwright.training.diagnostics.doctor.report import DoctorReport, diagnose

__all__ = ["Diagnostic", "DoctorReport", "diagnose"]
