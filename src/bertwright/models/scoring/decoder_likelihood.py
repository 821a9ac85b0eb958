"""Log-likelihoods of texts that a decoder predicts, given their sources."""

from collections.abc import Sequence

import torch

from bertwright.data.tokenization.tokenizer import SpecialTokens
from bertwright.models.generation.generate import GenerationLanguages, decoder_start_id
from bertwright.models.model import Model
from bertwright.models.text_batches import text_batches
from bertwright.modules.token_tensors import CrossAttentionSource


def shift_right(targets: Sequence[Sequence[int]], start_id: int) -> list[list[int]]:
    """Return decoder inputs: the start token, then each target but its last token."""
    return [[start_id, *target[:-1]] for target in targets]


@torch.inference_mode()
def target_log_likelihoods(
    model: Model,
    specials: SpecialTokens,
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    languages: GenerationLanguages = GenerationLanguages(),
) -> list[float]:
    """Return the log-likelihood of every target in nats, with teacher forcing.

    Sources and targets are token ids with special tokens; no target is empty.
    """
    assert model.decoder is not None, "the model needs a decoder"
    device = model.embedding_table.device
    inputs = shift_right(targets, decoder_start_id(model.recipe, specials))
    result = [0.0] * len(sources)
    for batch in text_batches(sources, specials.pad, device):
        token_info = batch.token_info.with_language(batch.token_ids, languages.prompt)
        source = CrossAttentionSource(model(batch.token_ids, token_info), token_info)
        length = max(len(targets[index]) for index in batch.indices)
        input_ids = torch.tensor(
            [inputs[n] + [specials.pad] * (length - len(inputs[n])) for n in batch.indices],
            device=device,
        )
        language_ids = None
        if languages.output is not None:
            language_ids = torch.full_like(input_ids, languages.output)
        states = model.decoder.decode(input_ids, source, language_ids=language_ids)
        for row, index in enumerate(batch.indices):
            labels = torch.tensor([*targets[index]], device=device)
            log_probs = model.logits(states[row, : len(labels)]).double().log_softmax(-1)
            result[index] = float(log_probs.gather(1, labels[:, None]).sum())
    return result
