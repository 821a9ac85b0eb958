"""Gates that mask tokens: their products over layers, and the divergence of predictions."""

import numpy as np
import pytest
import torch

from bertwright.analysis.attribution.learned_masks import (
    GATE_DISTRIBUTION,
    LearnedMasks,
    MaskableText,
    MaskGates,
    kl_divergence,
)
from bertwright.analysis.core.texts import encode_texts
from bertwright.core.significance import split_halves
from bertwright.tasks.formats.examples import Example
from experiments.analyses.models import SENTENCES, small_inputs, small_model


def test_divergence_follows_its_definition() -> None:
    generator = np.random.default_rng(0)
    reference, other = generator.dirichlet(np.ones(5), 2)
    expected = sum(p * np.log(p / q) for p, q in zip(reference, other, strict=True))
    divergence = kl_divergence(torch.from_numpy(reference), torch.from_numpy(other))
    assert float(divergence) == pytest.approx(expected)
    certain = torch.tensor([1.0, 0.0])
    assert float(kl_divergence(certain, certain)) == pytest.approx(0, abs=1e-6)


def test_gates_are_products_over_layers_and_leave_other_positions_open() -> None:
    model = small_model()
    (text,) = encode_texts(model, [Example(SENTENCES[0])])
    maskable = MaskableText.from_text(model, text, 0, 0)
    generator = torch.Generator().manual_seed(0)
    gates = MaskGates(32, 2, model, generator)
    with torch.no_grad():
        for network in gates.gate_networks:
            for parameter in network.parameters():
                parameter.copy_(3 * torch.randn(parameter.shape, generator=generator))
        states = [maskable.embeddings, *maskable.hidden_states]
        normal = [(s - s.mean(-1, True)) / s.std(-1, correction=0, keepdim=True) for s in states]
        logits = [
            network(torch.cat((normal[0], state), -1))[:, 0]
            for network, state in zip(gates.gate_networks, normal, strict=True)
        ]
        assert len(logits) == 3
        for layer in range(3):
            torch.testing.assert_close(
                torch.stack(gates.logits(maskable, layer)),
                torch.stack(logits[: layer + 1]),
                rtol=1e-3,
                atol=1e-3,
            )
            used = gates.logits(maskable, layer)
            product = torch.stack([GATE_DISTRIBUTION.gates(one) for one in used]).prod(0)
            product[~maskable.is_maskable] = 1.0
            torch.testing.assert_close(gates.gate_values(maskable, layer)[:, 0], product)
            probabilities = [GATE_DISTRIBUTION.open_probability(one) for one in used]
            products = [torch.stack(probabilities[: n + 1]).prod(0) for n in range(layer + 1)]
            torch.testing.assert_close(
                gates.open_probabilities(maskable, layer), torch.stack(products)
            )
        open_gates, closed = torch.ones(len(text)), torch.zeros(len(text))
        unchanged = maskable.predict_with_gates(open_gates, gates.mask_embedding)
        torch.testing.assert_close(unchanged, maskable.probabilities)
        assert (maskable.predict_with_gates(closed, gates.mask_embedding) != unchanged).any()
    words = (text.word_ids >= 0).nonzero()[0].tolist()
    masked = maskable.prediction.masked_position
    assert maskable.is_maskable.nonzero().flatten().tolist() == [n for n in words if n != masked]


def test_texts_of_the_second_half_are_masked_by_gates_of_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inputs = small_inputs(texts=[*SENTENCES, *SENTENCES])
    analysis, trained = LearnedMasks(), []
    train, test = split_halves(12, 0)

    def open_every_second(self, text: MaskableText, *_: object) -> torch.Tensor:
        gates = (torch.arange(len(text.embeddings)) % 2).to(text.embeddings)
        return gates.where(text.is_maskable, 1.0)[:, None]

    def untrained(_, inputs, texts: list[MaskableText]) -> MaskGates:
        trained.extend(len(text.embeddings) for text in texts)
        return MaskGates(32, 2, inputs.model, torch.Generator().manual_seed(0))

    monkeypatch.setattr(MaskGates, "gate_values", open_every_second)
    monkeypatch.setattr(LearnedMasks, "train_gates", untrained)
    result = analysis.run(inputs)
    assert trained == [len(inputs.texts[n]) for n in train]
    counts = []
    for number in test.tolist():
        text = MaskableText.from_text(inputs.model, inputs.texts[number], 0, number)
        positions = text.is_maskable.nonzero().flatten()
        counts.append((int((positions % 2).sum()), len(positions)))
    kept, total = np.sum(counts, 0)
    values = {finding.metric: finding.value for finding in result.findings}
    learned, random = result.arrays["prediction_change"].mean(0)
    assert values == pytest.approx(
        {
            "fraction of tokens kept": kept / total,
            "prediction change, nats": learned,
            "prediction change, as many random tokens": random,
            "prediction change, random minus learned": random - learned,
        }
    )
    assert (result.arrays["prediction_change"] > 0).all()
    assert "eight texts" in str(analysis.not_applicable(small_inputs(texts=[*SENTENCES, "a ship"])))
    eight = small_inputs(texts=[*SENTENCES, *SENTENCES[:2]])
    assert analysis.not_applicable(eight) is None


def test_training_the_gates_leaves_no_gradients_in_the_model() -> None:
    inputs = small_inputs(texts=[*SENTENCES, *SENTENCES])
    LearnedMasks(steps=2).run(inputs)
    model = inputs.model.text_model.model
    assert all(parameter.grad is None for parameter in model.parameters())
