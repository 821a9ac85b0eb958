"""In which layers coreference becomes predictable (Tenney et al. 2019a, b)."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from pydantic import Field

from bertwright.analysis.core.analysis import AnalysisInput
from bertwright.analysis.core.texts import AnalysedText
from bertwright.analysis.probing.edge_probe import (
    EdgeProbing,
    EdgesByTask,
    gain_claims,
    order_claim,
)
from bertwright.analysis.probing.edge_tasks import LabelledEdge
from bertwright.analysis.syntax.coreference import encode_complete_stories
from bertwright.analysis.syntax.stories import (
    MENTION_KINDS,
    CoreferenceStory,
    Mention,
    sample_stories,
)
from bertwright.core.rng import stream_key

COREFERENCE, MENTION_FORMS = "coreference", "gender and number"


class CoreferenceProbe(EdgeProbing):
    """In which layers it is predictable whether two mentions are the same person.

    The texts are those of the analysis ``coreference``: short stories about two or three people,
    ``num_stories`` for each kind of the last mention. A probe of the last mention and an earlier
    one predicts whether they are the same person. In comparison, a probe of one mention predicts
    the gender or number that its word expresses. The method is that of :class:`EdgeProbing`.
    """

    kind: Literal["coreference-probe"] = "coreference-probe"
    num_stories: int = Field(default=100, ge=20)
    title = "In which layers is coreference resolved?"
    source = "Tenney et al. 2019"
    claims = (
        order_claim(
            COREFERENCE,
            MENTION_FORMS,
            "9.47 for coreference and 4.64 for types of entities in BERT-large",
        ),
        *gain_claims(COREFERENCE, MENTION_FORMS),
    )

    def not_applicable(self, inputs: AnalysisInput) -> str | None:
        stories, _ = self.sample_stories(inputs)
        if 2 * len(stories) < len(MENTION_KINDS) * self.num_stories:
            return "its maximum length is too short for most of the stories"
        return super().not_applicable(inputs)

    def probed_texts(self, inputs: AnalysisInput) -> tuple[Sequence[AnalysedText], EdgesByTask]:
        stories, texts = self.sample_stories(inputs)
        edges = {
            COREFERENCE: [coreference_edges(story) for story in stories],
            MENTION_FORMS: [form_edges(story) for story in stories],
        }
        return texts, edges

    def compared_tasks(self) -> Sequence[tuple[str, str]]:
        return ((COREFERENCE, MENTION_FORMS),)

    def sample_stories(
        self, inputs: AnalysisInput
    ) -> tuple[list[CoreferenceStory], list[AnalysedText]]:
        """Sample and encode stories that the model does not need to truncate."""
        generator = np.random.default_rng(stream_key(inputs.seed, "coreference probe"))
        return encode_complete_stories(inputs.model, sample_stories(self.num_stories, generator))


def coreference_edges(story: CoreferenceStory) -> list[LabelledEdge]:
    """Return the last mention with each earlier one."""
    return [
        LabelledEdge(
            (mention_span(story.anaphor), mention_span(antecedent)),
            "same person" if is_coreferent else "another person",
        )
        for antecedent, is_coreferent in zip(
            story.antecedents, story.is_coreferent.tolist(), strict=True
        )
    ]


def form_edges(story: CoreferenceStory) -> list[LabelledEdge]:
    """Return every mention with the gender or number that its word expresses."""
    return [LabelledEdge((mention_span(mention),), mention.form) for mention in story.mentions]


def mention_span(mention: Mention) -> tuple[int, int]:
    """Return the word of a mention as a span."""
    return mention.word_index, mention.word_index + 1
