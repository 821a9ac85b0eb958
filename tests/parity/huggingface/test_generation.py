"""Stock encoder-decoders generate the same texts, greedily and with beams, imported or exported."""

from pathlib import Path

import pytest
import torch
import transformers

from bertwright.interop.huggingface.exporter import export_huggingface
from bertwright.interop.huggingface.importer import import_huggingface
from bertwright.models.generation.config import GenerationConfig
from bertwright.models.generation.generate import generate_outputs
from bertwright.tasks.finetuning.finetune import finetune
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.outputs import TextOutput
from bertwright.tasks.task import Task
from bertwright.testing.toy import randomise, toy_text_model
from stock_models import saved, stock_model

SEARCHES = {
    "greedy": {},
    "short": {"num_beams": 3, "length_penalty": 0.6},
    "long": {"num_beams": 4, "length_penalty": 2.0},
    "penalised": {"num_beams": 3, "repetition_penalty": 1.8},
}
every_search = pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
MODELS = pytest.mark.parametrize("model_type", ["T5", "Bart"])
TEXTS = ["the ship", "a", "the ship sees the sea, and the sea", "ships see a sea"]


@every_search
@MODELS
def test_an_imported_model_generates_the_same(model_type: str, search, tmp_path: Path) -> None:
    stock = stock_model(f"{model_type}ForConditionalGeneration")
    ours, tokenizer = import_huggingface(saved(stock, tmp_path / "stock"))
    specials = tokenizer.special_tokens
    sources = [[specials.start, *tokenizer.encode(text)[:9], specials.end] for text in TEXTS]
    # Ours never generates special tokens, nor rows without a token.
    suppressed = {*range(ours.vocab_size)} - {*tokenizer.ids.tolist()} | specials.all
    config = GenerationConfig(max_new_tokens=6, temperature=0 if not search else 1, **search)
    ours.restrict_to_vocabulary(tokenizer)
    outputs = generate_outputs(ours, tokenizer, sources, config)
    for source, output in zip(sources, outputs, strict=True):
        (expected,) = stock.generate(
            torch.tensor([source]),
            max_new_tokens=6,
            do_sample=False,
            suppress_tokens=sorted(suppressed - {specials.end}),
            forced_eos_token_id=None,
            decoder_start_token_id=0 if model_type == "T5" else specials.end,
            eos_token_id=specials.end,
            **search,
        ).tolist()
        assert [*output.token_ids] == expected[1:]


@every_search
@MODELS
def test_an_exported_fine_tuned_model_generates_the_same(
    model_type: str, search, tmp_path: Path
) -> None:
    examples = [Example(text, label=text[::-1]) for text in TEXTS]
    pretrained = toy_text_model(
        [t for e in examples for t in (e.text, str(e.label))] * 9, recipe=model_type.lower()
    )
    randomise(pretrained.model, 0.5)
    task = Task("task", TextOutput(max_target_length=7, **search))
    model = finetune(pretrained, task, train=examples, dev=examples, epochs=0).model
    report = export_huggingface(model, model.tokenizer, tmp_path / "export", verify=True)
    assert report.architecture == f"{model_type}ForConditionalGeneration"
    stock = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "export")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "export")
    assert stock.generation_config.max_new_tokens == 7
    inputs = tokenizer(TEXTS, return_tensors="pt", padding=True, return_token_type_ids=False)
    texts = tokenizer.decode(stock.generate(**inputs), skip_special_tokens=True)
    assert [p.value for p in model.predict(TEXTS)] == [text.strip() for text in texts]
