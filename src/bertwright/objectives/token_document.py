"""Token-document relation: is this token repeated in its document? (Sun et al. 2019b, 4.2.1)."""

from typing import ClassVar, Literal

import numpy as np

from bertwright.batches.targets import BatchWithTargets, Targets
from bertwright.batches.token_info import SequenceBatch
from bertwright.core.errors import UserError
from bertwright.objectives.capabilities import Capabilities
from bertwright.objectives.classification import TokenClassification
from bertwright.objectives.objective import MaskingContext


class TokenDocumentRelation(TokenClassification):
    """Predict for every token whether it also occurs in another part of its document.

    Such a token is common, or indicates the topic of the document. The paper asks about "other
    segments of the document" and does not define a segment. Here, other parts are those outside the
    sequence. In a pair from one document neither text counts for the other, so the label cannot be
    read off the sequence. If the whole document is in the sequence, no token counts as repeated.
    All tokens except special tokens are targets, also within words.
    """

    kind: Literal["token-document"] = "token-document"

    capabilities: ClassVar[Capabilities] = Capabilities(
        needs_document_context=True, class_labels=("only here", "elsewhere too")
    )

    def make_targets(self, batch: SequenceBatch, context: MaskingContext) -> BatchWithTargets:
        occurs_elsewhere = batch.token_info.occurs_elsewhere
        if occurs_elsewhere is None:
            raise UserError(
                "objectives.token-document needs sequences that are parts of documents: set "
                "assembly.kind to another one, such as segment-pair or doc-sentences"
            )
        occurs = occurs_elsewhere.ravel()
        positions = np.arange(occurs.size, dtype=np.int64)
        labels = np.maximum(occurs, 0).astype(np.int64)
        return batch, Targets(positions, labels, (occurs >= 0).astype(np.float32))
