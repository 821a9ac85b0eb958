"""Trainable word vectors of a task, beside the features of a frozen encoder.

ELMo is used as [x; ELMo]: x are the word vectors of the task model (Peters et al. 2018, section
3.3). Here x is a vector for each token of the encoder's vocabulary, read at the first token of a
word. So a word is a word for a vocabulary of words, and its first part for one of subwords.
"""

from pathlib import Path

import torch
from pydantic import Field
from torch import Tensor, nn

from bertwright.core.config import Settings
from bertwright.core.errors import UserError
from bertwright.data.tokenization.tokenizer import Tokenizer
from bertwright.models.saving import load_model
from bertwright.modules.embedding_lookup import embedding_lookup, empty_embedding
from bertwright.modules.initialisation import PublishedInitialisationConfig, initialise


class WordVectorsConfig(Settings):
    """Settings of word vectors.

    ``width`` is the width of random vectors. ``source`` is a model folder whose token vectors they
    start from; tokens that it lacks keep a random vector.
    """

    width: int = Field(default=100, ge=1, le=65_536)
    source: str | None = None


class WordVectors(nn.Module):
    """A vector for each token: (M,) token ids to (M, width)."""

    def __init__(self, config: WordVectorsConfig, vocab_size: int) -> None:
        super().__init__()
        self.config = config
        self.table = empty_embedding(vocab_size, config.width)

    def forward(self, token_ids: Tensor) -> Tensor:
        return embedding_lookup(self.table.weight, token_ids)

    @torch.no_grad()
    def init(self, tokenizer: Tokenizer, seed: int) -> None:
        """Initialise the vectors for a tokenizer; random ones as the tables of BERT.

        Errors: UserError for a source of another width.
        """
        initialise(self, PublishedInitialisationConfig(), seed)
        if self.config.source is None:
            return
        model, other = load_model(Path(self.config.source))
        vectors = model.embedding_table
        if vectors.shape[1] != self.config.width:
            raise UserError(
                f"head.word_vectors.source: the vectors of {self.config.source} have a width of "
                f"{vectors.shape[1]}: set head.word_vectors.width to it"
            )
        for token_id in tokenizer.ids.tolist():
            other_id = other.token_to_id(tokenizer.id_to_token(token_id))
            if other_id is not None and other_id < len(vectors):
                self.table.weight[token_id] = vectors[other_id].to(self.table.weight)
