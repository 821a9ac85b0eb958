"""The doctor: what people lose weeks to, looked for before the weeks are lost.

Reading order: ``findings`` (what a check says), ``data_checks`` with ``repetition`` (the text),
``recipe_checks`` (the choices, without running anything), ``drawing``, ``mask_checks`` and
``isolation`` (real batches), ``trial`` with ``by_heart``, ``range_test`` and ``short_run`` (a few
minutes of training), ``examination`` (all of it).
"""

from bertwright.training.doctor.examination import Examination, examine
from bertwright.training.doctor.findings import Finding

__all__ = ["Examination", "Finding", "examine"]
