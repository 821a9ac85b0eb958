"""How a folder of sentence-transformers makes the vector of a text: by what stands beside the files
of the stock class."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError

from bertwright.axes import explain
from bertwright.errors import UserError
from bertwright.interop.huggingface.tokenizer_settings import NO_LIMIT, longest_row, read_json
from bertwright.recipes import Pooling, Vectors

MODULES = "modules.json"

SETTINGS = tuple(
    f"sentence_{kind}_config.json"
    for kind in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
"""Where it stands how texts become pieces: in the first of these; the later ones are older."""

READ = ("Transformer", "Pooling", "Normalize")
"""Modules that change no vector otherwise than ``embed`` can, in their order."""

ABOUT = "config_sentence_transformers.json"
"""Where prompts stand, to how many numbers vectors are truncated, and how they are compared."""

KEPT = ("prompts", "default_prompt_name", "truncate_dim", "similarity_fn_name")
"""Its keys that an export writes again."""

SENTENCE = "sentence_embedding"
"""The feature that holds the vector of a text."""

POOLINGS: dict[str, Pooling] = {"mean": "mean", "cls": "cls"}
OLD_POOLINGS = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}
"""What sentence-transformers calls the poolings: as one word since version 6, before as one key for
each."""


def read_sentence_vectors(folder: Path, config: Mapping[str, Any], lowercase: bool) -> Vectors:
    """What a folder says, ``config`` being that of its stock class, and ``lowercase`` whether its
    tokenizer makes small letters of large ones; the mean where it is none of sentence-transformers.

    Errors: UserError for vectors that are made otherwise.
    """
    if not (folder / MODULES).is_file():
        return Vectors()
    listed = read_json(folder, MODULES, list)
    if not all(isinstance(module, dict) and "type" in module for module in listed):
        raise UserError(f"{folder / MODULES} holds no list of modules: copy it again")
    stated = [(str(m["type"]).rpartition(".")[2], str(m.get("path", ""))) for m in listed]
    modules, order = dict(stated), [kind for kind, _ in stated]
    if other := [kind for kind in order if kind not in READ]:
        raise _refused(folder, f"has the module {other[0]}")
    if order != [kind for kind in READ if kind in modules]:
        raise _refused(folder, f"has the modules {', '.join(order)} in this order")
    scaled = read_json(folder, f"{modules.get('Normalize', '')}/config.json".lstrip("/"))
    if scaled.get("module_input_name", SENTENCE) != SENTENCE:
        raise _refused(folder, "scales the states of tokens to length 1")
    settings = next(filter(None, (read_json(folder, name) for name in SETTINGS)), {})
    if settings.get("do_lower_case") and not lowercase:
        raise _refused(folder, "makes small letters of large ones before its tokenizer")
    pooled = read_json(folder, f"{modules.get('Pooling', '')}/config.json".lstrip("/"))
    about = {key: value for key, value in read_json(folder, ABOUT).items() if key in KEPT}
    if about.get("default_prompt_name") and not pooled.get("include_prompt", True):
        raise _refused(folder, "pools without its default prompt")
    try:
        return Vectors(
            pooling=_pooling(folder, pooled),
            longest=_longest(folder, config, settings.get("max_seq_length")),
            normalise="Normalize" in modules,
            **{**about, "prompts": _prompts(about.get("prompts"))},
        )
    except ValidationError as error:
        raise explain(error, str(folder / ABOUT)) from None


def _prompts(stated: Any) -> Any:
    """Return the prompts that say something; a name may stand there without any."""
    if not isinstance(stated, Mapping):
        return {} if stated is None else stated
    named = cast(Mapping[str, Any], stated)
    return {name: prompt for name, prompt in named.items() if prompt is not None}


def _pooling(folder: Path, pooled: Mapping[str, Any]) -> Pooling:
    old = [key for key, on in pooled.items() if key.startswith("pooling_mode_") and on]
    said = pooled.get("pooling_mode") or [OLD_POOLINGS.get(key, key) for key in old] or "mean"
    names: list[str] = [said] if isinstance(said, str) else said
    if len(names) != 1 or names[0] not in POOLINGS:
        raise _refused(folder, f"pools by {' and '.join(names)}")
    return POOLINGS[names[0]]


def _longest(folder: Path, config: Mapping[str, Any], own: int | None) -> int | None:
    """What the folder states, else the least of what its tokenizer and its stock class do."""
    stated = [longest_row(folder), config.get("max_position_embeddings")] if own is None else [own]
    return min((n for n in stated if n is not None and 0 < n < NO_LIMIT), default=None)


def _refused(folder: Path, what: str) -> UserError:
    return UserError(
        f"{folder} {what}, and vectors are the mean or cls of what the encoder says: without its "
        f"{MODULES} it is read as it is"
    )
