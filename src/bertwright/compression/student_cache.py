"""A cache of the students after each stage of a method, so that an interrupted run resumes."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from bertwright.compression.method import CompressionStage
from bertwright.models.text_model import TextModel
from bertwright.tasks.fine_tuned_model import FineTunedModel, is_fine_tuned, load_fine_tuned_model
from bertwright.tasks.finetuning.finetune import FineTuningResult
from bertwright.tasks.formats.examples import Examples
from bertwright.tasks.provenance import examples_checksum, prediction_fingerprint, provenance


@dataclass(frozen=True)
class StudentCache:
    """A cache of a teacher's students, one folder each, named by a hash of all inputs.

    ``train`` and ``dev`` are the examples of the task, whatever texts a stage learns from.
    """

    folder: Path
    teacher: FineTunedModel
    train: Examples
    dev: Examples

    def load_or_train(
        self,
        stage: CompressionStage,
        student: TextModel,
        examples: Examples,
        settings: Mapping[str, Any],
        train: Callable[[], FineTuningResult],
    ) -> FineTunedModel:
        """Return the student after a stage, from the cache or by training it.

        ``settings`` are fine-tuning overrides. The student is always read from its folder, so that
        an interrupted run and an uninterrupted one continue alike.
        """
        inputs = {
            "teacher": prediction_fingerprint(self.teacher),
            "stage": stage.model_dump(mode="json", by_alias=True),
            "settings": dict(settings),
            "texts": examples_checksum(examples),
            **provenance(student, self.train, self.dev),
        }
        digest = sha256(json.dumps(inputs, sort_keys=True, default=str).encode()).hexdigest()
        folder = self.folder / f"student-{digest[:12]}"
        if not is_fine_tuned(folder):
            train().write(folder)
        return load_fine_tuned_model(folder, student.precision)
