"""Scores of predictions, text by text: losses, correct predictions and confidence."""

import numpy as np
import pytest
import torch

from bertwright.analysis.core.prediction_probe import MaskedLMProbe, PredictionScores
from bertwright.analysis.core.texts import encode_texts
from bertwright.modules.token_tensors import TokenInfo
from bertwright.tasks.formats.examples import Example
from experiments.analyses.models import SENTENCES, WORDS, small_model


@pytest.mark.parametrize("system", ["bert", "gpt-2"])
def test_scores_are_sums_over_the_targets_of_each_text(system: str) -> None:
    model = small_model(system)
    texts = encode_texts(model, [Example(text) for text in SENTENCES])
    probe = MaskedLMProbe(model, texts, seed=3)
    scores, confidence = probe.evaluate(), probe.confidence_sums()
    network, mask = model.text_model.model, model.tokenizer.special_tokens.mask
    for number, text in enumerate(texts):
        token_ids = torch.tensor([text.token_ids])
        if system == "bert":
            targets, predicting = [probe.target_positions(number)] * 2
            token_ids[0, targets] = mask
        else:
            targets = list(range(1, len(text)))
            predicting = list(range(len(text) - 1))
        with torch.inference_mode():
            states = network(token_ids, TokenInfo.from_token_ids(token_ids))
            logs = network.logits(states[0, predicting]).log_softmax(-1)
        labels = torch.tensor(text.token_ids)[targets]
        loss = -logs[torch.arange(len(targets)), labels].sum()
        assert scores.loss[number] == pytest.approx(float(loss))
        assert scores.num_targets[number] == len(targets)
        assert scores.num_correct[number] == int((logs.argmax(-1) == labels).sum())
        assert confidence[number] == pytest.approx(float(logs.amax(-1).exp().sum()))


def test_fractions_are_of_all_targets() -> None:
    scores = PredictionScores(*np.array([[6.0, 2.0], [1.0, 2.0], [3.0, 2.0]]))
    other = PredictionScores(*np.array([[1.0, 4.0], [0.0, 0.0], [3.0, 2.0]]))
    assert (scores.mean_loss, scores.accuracy) == (8 / 5, 3 / 5)
    finding = scores.loss_minus(other, "more", seed=0, layer=1)
    assert finding.value == pytest.approx(3 / 5)
    assert (finding.metric, finding.layer, finding.num_units) == ("more", 1, 2)
    assert finding.baseline is not None
    assert finding.baseline.value == 1


def test_about_a_seventh_of_the_words_is_masked_wherever_they_are() -> None:
    model, generator = small_model(), np.random.default_rng(0)
    lengths = [1, 3, 9, 10, 11, 16, 20] + [10] * 300
    samples = [" ".join(generator.choice(WORDS, size)) for size in lengths]
    texts = encode_texts(model, [Example(text) for text in samples])
    targets = [MaskedLMProbe(model, texts).target_positions(n) for n in range(len(texts))]
    assert [len(positions) for positions in targets[:7]] == [1, 1, 1, 2, 2, 2, 3]
    # The first and the last token are special.
    counts = np.bincount(np.concatenate(targets[7:]), minlength=12)
    assert counts[[0, 11]].tolist() == [0, 0]
    assert counts[1:11] / 300 == pytest.approx(np.full(10, 0.2), abs=0.09)
    others = [MaskedLMProbe(model, texts, seed=1).target_positions(n) for n in range(20)]
    assert others != targets[:20]
