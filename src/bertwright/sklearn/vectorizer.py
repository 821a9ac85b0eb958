"""``EncoderVectorizer``: one vector per text."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from bertwright.core.config import InferencePrecision
from bertwright.models.layer_selection import LayerReduction
from bertwright.models.text_model import TextModel
from bertwright.recipes import Pooling
from bertwright.sklearn.encoder_source import DEFAULT_MODEL, load_encoder, resolve_seed
from bertwright.sklearn.input_tags import accept_texts
from bertwright.sklearn.saved_model import ModelEstimator
from bertwright.sklearn.text_rows import TextRow, read_rows


class EncoderVectorizer(
    ClassNamePrefixFeaturesOutMixin, TransformerMixin, ModelEstimator[TextModel]
):
    """A transformer from texts to their vectors (N, D) float32, as ``embed`` computes them.

    ``X`` holds N texts; the cells of a table's row are joined to one text.

    Attributes:
        model: a model folder, or the name of a recipe, which is built untrained with a vocabulary
            of the texts in ``fit``. Only this needs ``fit`` to read the texts.
        pooling: ``mean`` or ``cls``; None for what the model folder says.
        normalise: scale every vector to length 1.
        layers: the layers to use, as in ``embed``.
        mix: how several layers are combined: ``concat``, ``sum`` or ``mean``.
        precision: ``float32``, ``bf16`` or ``int8``; None for what the device multiplies fast.
        random_state: seed of an untrained encoder.
    """

    pooling: Pooling | None
    mix: LayerReduction
    precision: InferencePrecision | None

    def __init__(
        self,
        model: str | Path = DEFAULT_MODEL,
        *,
        pooling: Pooling | None = None,
        normalise: bool = False,
        layers: str = "last",
        mix: LayerReduction = "concat",
        precision: InferencePrecision | None = None,
        random_state: Any = None,
    ) -> None:
        self.model = model
        self.pooling = pooling
        self.normalise = normalise
        self.layers = layers
        self.mix = mix
        self.precision = precision
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: N803
        """Load the model; ``y`` is ignored."""
        texts = _joined(read_rows(self, X, reset=True))
        self.model_ = load_encoder(
            self.model, texts, resolve_seed(self.random_state), self.precision
        )
        self._n_features_out = self._embed([]).shape[1]
        return self

    def transform(self, X: Any) -> NDArray[np.float32]:  # noqa: N803
        """Return one vector per text: (N, D) float32."""
        check_is_fitted(self)
        return self._embed(_joined(read_rows(self, X, reset=False)))

    def _embed(self, texts: list[str]) -> NDArray[np.float32]:
        return self.model_.embed(texts, self.pooling, self.normalise, self.layers, self.mix)

    def __sklearn_tags__(self) -> Tags:
        tags = accept_texts(super().__sklearn_tags__())
        assert tags.transformer_tags is not None, "a transformer has tags of one"
        tags.transformer_tags.preserves_dtype = []
        return tags


def _joined(rows: Iterable[TextRow]) -> list[str]:
    return [" ".join(row) for row in rows]
