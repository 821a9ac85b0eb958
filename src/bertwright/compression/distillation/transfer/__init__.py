"""Transfer sets: unlabelled or augmented texts with a teacher's outputs.

Turc et al. (2019); Tang et al. (2019).
"""

from bertwright.compression.distillation.transfer.dataset import TransferDataset
from bertwright.compression.distillation.transfer.examples import UnlabelledFile
from bertwright.compression.distillation.transfer.transfer_sets import TransferSets

__all__ = ["TransferDataset", "TransferSets", "UnlabelledFile"]
