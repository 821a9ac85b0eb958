"""Students behind the stages of a method, kept so that a run that was stopped goes on with them."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from bertwright.compression.method import Stage
from bertwright.model.text_model import TextModel
from bertwright.tasks.fine_tuned import FineTuned, is_fine_tuned, load_fine_tuned
from bertwright.tasks.finetuning import FineTuneResult
from bertwright.tasks.formats.examples import Examples
from bertwright.tasks.origins import answering_sums, of_examples, origins


@dataclass(frozen=True)
class KeptStudents:
    """Those of a teacher, a folder each in ``folder``, named by all that they follow from;
    ``train`` and ``dev`` are the examples of the task, whatever texts a stage learns from."""

    folder: Path
    teacher: FineTuned
    train: Examples
    dev: Examples

    def behind(
        self,
        stage: Stage,
        student: TextModel,
        texts: Examples,
        settings: Mapping[str, Any],
        learn: Callable[[], FineTuneResult],
    ) -> FineTuned:
        """What a stage makes of a student by these texts, with settings of fine-tuning beside its
        own: what is there, or else what ``learn`` finds. It is read from its folder either way, so
        that a run goes on in the same way whether it was stopped or not."""
        follows = {
            "teacher": answering_sums(self.teacher),
            "stage": stage.model_dump(mode="json", by_alias=True),
            "settings": dict(settings),
            "texts": of_examples(texts),
            **origins(student, self.train, self.dev),
        }
        told = json.dumps(follows, sort_keys=True, default=str)
        own = self.folder / f"student-{sha256(told.encode()).hexdigest()[:12]}"
        if not is_fine_tuned(own):
            learn().write(own)
        return load_fine_tuned(own, student.precision)
