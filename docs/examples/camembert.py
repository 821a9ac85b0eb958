"""CamemBERT (Martin et al. 2020): RoBERTa's encoder for French, as a family of stock classes."""

from bertwright.interop.huggingface.families.registry import add_family
from bertwright.interop.huggingface.families.roberta import Roberta


class Camembert(Roberta):
    model_type = "camembert"
    class_name = "Camembert"


add_family(Camembert())
