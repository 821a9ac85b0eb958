"""scikit-learn estimators: text vectors, classification, regression and tagging."""

from bertwright.sklearn.sequence_estimators import EncoderClassifier, EncoderRegressor
from bertwright.sklearn.token_tagger import TokenTagger
from bertwright.sklearn.vectorizer import EncoderVectorizer

__all__ = ["EncoderClassifier", "EncoderRegressor", "EncoderVectorizer", "TokenTagger"]
