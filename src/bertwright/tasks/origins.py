"""What a fine-tuned model was made of, as sums by which it is known again."""

from collections.abc import Iterator, Mapping
from hashlib import sha256

import torch
from torch import nn

from bertwright.model.text_model import TextModel
from bertwright.tasks.distant import Distant
from bertwright.tasks.fine_tuned import FineTuned, network_of
from bertwright.tasks.formats.examples import Examples

MODEL, TRAIN, HELD_OUT = "model", "training_examples", "held_out_examples"


def origins(model: TextModel, train: Examples, held_out: Examples) -> Mapping[str, str]:
    """SHA-256 sums of a model and of examples."""
    return {MODEL: of_model(model), TRAIN: of_examples(train), HELD_OUT: of_examples(held_out)}


def answering_sums(model: FineTuned) -> list[str]:
    """What decides how a model answers: where all is the same, so are its answers."""
    return [of_model(model), model.told(), model.precision]


def of_model(model: TextModel) -> str:
    """Of all that decides what is learned from it, the head of an earlier fine-tuning too."""
    net = network_of(model)
    found = sha256(f"{net.recipe.as_yaml()}{model.tokenizer.hash}".encode())
    for each in weights_told(net):
        found.update(each)
    return found.hexdigest()


def weights_told(net: nn.Module) -> Iterator[bytes]:
    """Its weights, whatever their order and where they are computed with, to be summed."""
    for name, tensor in sorted(net.state_dict().items()):
        yield f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode()
        yield tensor.cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()


def of_examples(examples: Examples) -> str:
    """Of what they say, wherever they stood."""
    if isinstance(examples, Distant):
        return examples.sum
    found = sha256()
    for example in examples:
        found.update(f"{example!r}\n".encode("utf-8", "surrogatepass"))
    return found.hexdigest()
