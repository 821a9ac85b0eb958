"""Texts that a teacher answers, for a student to learn from: without labels, or changed (Turc et
al. 2019; Tang et al. 2019)."""

from bertwright.compression.transfer.answered import AnsweredTexts
from bertwright.compression.transfer.sets import TransferSets
from bertwright.compression.transfer.texts import InFile

__all__ = ["AnsweredTexts", "InFile", "TransferSets"]
