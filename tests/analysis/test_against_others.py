"""What is found inside a model is what others find: attention, rollout and importances computed
from what Transformers gives out of the exported model, integrated gradients by captum."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from stock import TOKENIZERS, randomise

from bertwright.analysis.analysis import Case
from bertwright.analysis.asking import Asking
from bertwright.analysis.attention.rollout import rollout
from bertwright.analysis.attribution.answers import Answer
from bertwright.analysis.listening import heard_batches
from bertwright.analysis.planted.models import small_case
from bertwright.analysis.removal.importance import importances
from bertwright.analysis.subject import Subject
from bertwright.analysis.texts import read_texts
from bertwright.interop.huggingface import export_folder
from bertwright.model import Model
from bertwright.model.text_model import TextModel
from bertwright.tasks.formats.examples import Example
from bertwright.text.tokenizers import Tokenizer
from recipes_at_toy_size import toy

SENTENCES = ("the ships, three of them: ships!", "a lamp", "three ships of the three")

CLOSE = {"rtol": 0, "atol": 1e-5}


def exported(system: str, folder: Path, kind: str) -> tuple[Case, Any]:
    """A random model with texts, and the stock model that its export is."""
    tokenizer = Tokenizer(TOKENIZERS["Bert"]())
    model = Model.build(toy(system), tokenizer.size).eval()
    randomise(model, 0.2)
    export_folder(model, tokenizer, folder / "export")
    stock = getattr(transformers, kind).from_pretrained(
        folder / "export", attn_implementation="eager"
    )
    subject = Subject(system, TextModel(model, tokenizer, "float32"))
    return Case(subject, read_texts(subject, [Example(text) for text in SENTENCES])), stock.eval()


@pytest.mark.parametrize("system", ["bert", "albert", "electra", "gpt-2"])
def test_attention_and_rollout(system: str, tmp_path: Path) -> None:
    case, stock = exported(system, tmp_path, "AutoModel")
    for heard in heard_batches(case.subject, case.texts, ["blocks.*.attention.weights"]):
        ours = [heard.attention(layer).cpu() for layer in range(case.subject.num_layers)]
        rolled = rollout([own.mean(1) for own in ours])[-1]
        for row, text in enumerate(heard.texts):
            with torch.no_grad():
                out = stock(torch.tensor([text.pieces]), output_attentions=True)
            back = torch.eye(len(text))
            for own, theirs in zip(ours, out.attentions, strict=True):
                size = theirs.shape[-1]
                torch.testing.assert_close(own[row, :, :size, :size], theirs[0], **CLOSE)
                back = (theirs[0].mean(0) + torch.eye(size)) / 2 @ back
            torch.testing.assert_close(rolled[row, :size, :size], back, **CLOSE)


def test_importances(tmp_path: Path) -> None:
    case, stock = exported("bert", tmp_path, "AutoModelForMaskedLM")
    asking, mask = Asking(case.subject, case.texts), case.subject.tokenizer.specials.mask
    contexts: dict[int, torch.Tensor] = {}
    for layer, block in enumerate(stock.bert.encoder.layer):

        def keep(module: Any, given: Any, layer: int = layer) -> None:
            given[0].retain_grad()
            contexts[layer] = given[0]

        block.attention.output.dense.register_forward_pre_hook(keep)
    expected = np.zeros((case.subject.num_layers, case.subject.num_heads))
    for number, text in enumerate(case.texts):
        pieces = torch.tensor([text.pieces])
        places = asking.places(number)
        target = pieces[0, places].clone()
        pieces[0, places] = mask
        logits = stock(pieces).logits[0, places]
        torch.nn.functional.cross_entropy(logits, target, reduction="sum").backward()
        for layer, context in contexts.items():
            assert context.grad is not None
            by_head = (context * context.grad)[0].view(len(text), case.subject.num_heads, -1)
            expected[layer] += by_head.sum((0, 2)).abs().numpy(force=True)
    np.testing.assert_allclose(importances(asking), expected / len(case.texts), **CLOSE)


@pytest.mark.parametrize("points", [3, 40])
def test_integrated_gradients(points: int) -> None:
    # Takes seconds to import, which the other worker need not spend.
    from captum.attr import IntegratedGradients

    case = small_case()
    for number, text in enumerate(case.texts[:3]):
        own = Answer.of(case.subject, text, 0, number)
        found, _ = own.attributed(points)
        masks = torch.full_like(own.pieces, case.subject.tokenizer.specials.mask)
        theirs = IntegratedGradients(own.scores).attribute(
            own.entered(own.pieces),
            own.entered(masks),
            n_steps=points,
            method="riemann_middle",
        )
        expected = theirs.sum(-1)[0].numpy(force=True)
        np.testing.assert_allclose(found["integrated gradients"], expected, rtol=0, atol=1e-7)
