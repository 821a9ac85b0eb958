"""The tags of estimators that read texts."""

from sklearn.utils import Tags


def accept_texts(tags: Tags) -> Tags:
    """Return tags that declare texts, and tables of texts or of numbers written as text."""
    tags.input_tags.string = True
    tags.input_tags.categorical = True
    return tags
