"""Prediction of the relation of texts: next sentence, sentence order, both; turns of a dialogue."""

from typing import ClassVar, Literal

from torch import nn

from bertwright.batches.formats import InputFormat
from bertwright.batches.targets import BatchWithTargets, relation_targets
from bertwright.batches.token_info import SequenceBatch
from bertwright.objectives.capabilities import Capabilities
from bertwright.objectives.classification import PooledClassifier, SequenceClassification
from bertwright.objectives.objective import HeadContext, MaskingContext


class TextRelation(SequenceClassification):
    """Predict the relation of the texts of a sequence, one of ``classes``.

    The objective needs an input format with these relations; sequences with other relations are
    ignored.
    """

    required_format: ClassVar[str] = "pairs: assembly.kind must be segment-pair or sentence-pair"

    def make_targets(self, batch: SequenceBatch, context: MaskingContext) -> BatchWithTargets:
        return batch, relation_targets(batch, self.capabilities.relations)

    def format_conflict(self, input_format: InputFormat) -> str | None:
        if input_format.relations.isdisjoint(self.capabilities.relations):
            return f"needs {self.required_format}, not {input_format.kind_name()}"
        return None


class NextSentence(TextRelation):
    """Predict next text (0) or random text (1) (Devlin et al. 2019, section 3.1).

    The head has a dense layer with tanh; without ``dense`` it is linear (MobileBERT).
    """

    kind: Literal["next-sentence"] = "next-sentence"
    dense: bool = True

    capabilities: ClassVar[Capabilities] = Capabilities(relations=("next", "random"))

    def build_head(self, context: HeadContext) -> nn.Module:
        if self.dense:
            return super().build_head(context)
        return PooledClassifier(context.encoder_config.width, 2, is_dense=False)


class SentenceOrder(TextRelation):
    """Predict consecutive texts in order (0) or swapped (1) (Lan et al. 2020, section 3.1)."""

    kind: Literal["sentence-order"] = "sentence-order"

    capabilities: ClassVar[Capabilities] = Capabilities(relations=("next", "previous"))


class SentenceRelation(TextRelation):
    """Predict next (0), random (1) or previous (2) text (Wang et al. 2019, section 2.2)."""

    kind: Literal["sentence-relation"] = "sentence-relation"

    capabilities: ClassVar[Capabilities] = Capabilities(relations=("next", "random", "previous"))


class SentenceDistance(TextRelation):
    """Predict next text (0), same document (1) or another (2) (Sun et al. 2019b, section 4.2.2)."""

    kind: Literal["sentence-distance"] = "sentence-distance"

    capabilities: ClassVar[Capabilities] = Capabilities(
        relations=("next", "same-document", "random")
    )


class DialogueRelation(TextRelation):
    """Predict turns of one dialogue (0), or one replaced (1) (Sun et al. 2019, section 3.3)."""

    kind: Literal["dialogue"] = "dialogue"

    capabilities: ClassVar[Capabilities] = Capabilities(relations=("real", "fake"))
    required_format: ClassVar[str] = "turns: assembly.kind must be dialogue, or a mixture with it"
