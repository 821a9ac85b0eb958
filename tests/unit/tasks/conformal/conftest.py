"""Shared fixtures."""

from small_encoders import byte_bpe, one_thread, pretrained, wordpiece

__all__ = ["byte_bpe", "one_thread", "pretrained", "wordpiece"]
