"""Checksums of the source model and the training examples of a fine-tuned model."""

from collections.abc import Iterator, Mapping
from hashlib import sha256

import torch
from torch import nn

from bertwright.models.text_model import TextModel
from bertwright.tasks.data.lazy_examples import LazyExamples
from bertwright.tasks.fine_tuned_model import FineTunedModel, network_of
from bertwright.tasks.formats.examples import Examples

MODEL, TRAIN, HELD_OUT = "model", "training_examples", "held_out_examples"


def provenance(model: TextModel, train: Examples, held_out: Examples) -> Mapping[str, str]:
    """Return SHA-256 checksums of a model and of examples."""
    return {
        MODEL: model_checksum(model),
        TRAIN: examples_checksum(train),
        HELD_OUT: examples_checksum(held_out),
    }


def prediction_fingerprint(model: FineTunedModel) -> list[str]:
    """Return everything that predictions depend on: equal fingerprints give equal predictions."""
    return [model_checksum(model), model.task_metadata_json(), model.precision]


def model_checksum(model: TextModel) -> str:
    """Return the SHA-256 of recipe, tokenizer and weights, with the head of a fine-tuned model."""
    network = network_of(model)
    checksum = sha256(f"{network.recipe.as_yaml()}{model.tokenizer.hash}".encode())
    for data in weight_bytes(network):
        checksum.update(data)
    return checksum.hexdigest()


def weight_bytes(module: nn.Module) -> Iterator[bytes]:
    """Iterate over the weights as bytes, in the order of names and independent of the device."""
    for name, tensor in sorted(module.state_dict().items()):
        yield f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode()
        yield tensor.cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()


def examples_checksum(examples: Examples) -> str:
    """Return the SHA-256 of the contents of examples, without their locations."""
    if isinstance(examples, LazyExamples):
        return examples.sha256
    checksum = sha256()
    for example in examples:
        checksum.update(f"{example!r}\n".encode("utf-8", "surrogatepass"))
    return checksum.hexdigest()
