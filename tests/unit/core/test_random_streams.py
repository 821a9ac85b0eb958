"""The names of all random streams of the package.

A name is hashed, so another spelling gives other random numbers. A second module that draws from
the same stream of a seed would get the same ones, for another purpose.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import bertwright

SOURCE = Path(bertwright.__file__).parent

# Parts of a name are joined by a slash; a star is a part that is computed.
STREAMS_OF_A_SEED = """
    adapters/*; algo; algo/questions/*/*; artefacts/*; asked; asking; assembly/*;
    assembly/contiguous-pair; assembly/dialogue; assembly/document-crops/*; assembly/packed;
    at random; attention parser; augmentation/*/*; bands; bits-per-byte; conformal/*;
    control tags/*; coreference; coreference names; coreference probe; doctor; dropout/*;
    effective context; exchange/*/*; finetuning/batches; finetuning/held-out; finetuning/rows;
    finetuning/turns/*; gates; generate/*/*; held-out; held-out halves; initialisation/*; items;
    knowledge-adapters/*; learned masks; lexicon/*; long; long/questions/*; low-rank/*;
    main auxiliary; mixing/*; mixture/*/*; near duplicates; new tokens/*; numbers; open;
    order *; order of heads; order/*; orders; other words/*; overlap; pairs; parity/*;
    permuted/*; perturbation; random features/*; ranking; ratio of medians; reranking/order/*;
    reranking/validation; restoration/split; retrieval; runs; sample; saying; sentence;
    sharpness/*/*; shots; states/*; stories/*; structural probe; suite/*; sweep/*/*/*; talks;
    tasks; testing/*; tickets/*; transfer/*; triggers/*; turn; variables/*; world
"""

STREAMS_OF_A_STREAM = """
    begin; between; chosen; corruption; cuts; deletion; denoising; die; document; fake;
    feistel/*; first; front; front of A; front of B; length; lengths; level *; noise; offsets;
    order; part; part *; parts; permutation; piece; relation; reordering; runs; same document;
    selection; sentence; sentences; short; single; skip-gram; subsampling; turn; which; whole;
    word-order
"""


def test_every_stream_of_a_seed_is_drawn_in_one_module() -> None:
    streams = {(name, module) for is_seed, name, module in _streams() if is_seed}
    assert sorted(name for name, _ in streams) == _names(STREAMS_OF_A_SEED)


def test_streams_within_a_stream_keep_their_names() -> None:
    streams = {name for is_seed, name, _ in _streams() if not is_seed}
    assert sorted(streams) == _names(STREAMS_OF_A_STREAM)


def _names(table: str) -> list[str]:
    return sorted(" ".join(name.split()) for name in table.split(";"))


def _streams() -> Iterator[tuple[bool, str, str]]:
    """Yield every named stream: whether it is one of a seed, its name, its module."""
    for file in sorted(SOURCE.rglob("*.py")):
        module = file.relative_to(SOURCE).with_suffix("").as_posix()
        for call in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            match call:
                case ast.Call(ast.Name("stream_key"), [key, *parts]):
                    is_seed = "key" not in ast.unparse(key)
                case ast.Call(ast.Attribute(_, "fold_in"), parts):
                    is_seed = False
                case _:
                    continue
            if (name := "/".join(map(_text, parts))).strip("*/ "):
                yield is_seed, name, module


def _text(part: ast.expr) -> str:
    match part:
        case ast.Constant(value):
            return str(value)
        case ast.JoinedStr(values):
            return "".join(map(_text, values))
        case _:
            return "*"
