"""From a model of ours to a folder that holds all that onnxruntime needs to answer as it does."""

from dataclasses import dataclass
from pathlib import Path

import bertwright
from bertwright.compression.quantisation import unrounded
from bertwright.encoder.kernels.eight_bits import saturates
from bertwright.extras import require
from bertwright.files import atomic_folder, digests, write_text
from bertwright.interop.onnx.about import GRAPH, INT8, About
from bertwright.interop.onnx.graph import inputs_of, outputs_of
from bertwright.interop.onnx.parity import Parity, parity, require_computed
from bertwright.interop.onnx.quantising import quantise
from bertwright.interop.onnx.ranges import Ranges
from bertwright.interop.onnx.session import LEVEL, Session
from bertwright.interop.onnx.tracing import write_graph
from bertwright.machine.description import versions
from bertwright.model.folder import CARD, RECIPE, WEIGHTS
from bertwright.model.text_model import TextModel
from bertwright.tasks.fine_tuned import TASK, FineTuned, network_of

LIBRARIES = ("onnx", "onnxscript", "onnxruntime")
"""What an export needs; a folder is opened with the last of them alone."""


@dataclass(frozen=True)
class Export:
    """What was written: the graphs by their files, and how far that in float32 is from the
    model."""

    graphs: tuple[str, ...]
    opset: int
    parity: Parity


def export_onnx(
    model: TextModel,
    folder: Path,
    int8: bool = False,
    parent: Path | None = None,
    exact: bool = True,
    ranges: Ranges | None = None,
) -> Export:
    """Write a model as a graph, with its tokenizer, its recipe, its task and where it is from.

    ``int8`` writes one in 8 bits beside it, or in its place where it need not be ``exact``; between
    its weights it has the ``ranges`` that were found ahead, or looks for them in every batch. What
    a model rounds between its weights, a graph in float32 does not. ``parent`` is the folder of the
    model, whose weights are named. A graph that gives other outputs than the model is not kept.

    Errors: MissingExtra without the libraries; UserError for a model that no graph computes, which
    says why.
    """
    for library in LIBRARIES:
        require(library, "onnx")
    model = unrounded(model)
    net = network_of(model)
    inputs, outputs = inputs_of(net.recipe), outputs_of(model)
    weights = None if parent is None else digests(parent / WEIGHTS).get(WEIGHTS)
    told = {"recipe": net.recipe.name, "bertwright": bertwright.__version__}
    with atomic_folder(folder) as temporary:
        graph = temporary / GRAPH
        opset = write_graph(model, outputs, told | ({"parent": weights} if weights else {}), graph)
        found = parity(model, inputs, outputs, Session(graph))
        reduced = saturates() if int8 else None
        if reduced is not None:
            quantise(graph, temporary / INT8, reduced, ranges)
            require_computed(model, inputs, outputs, Session(temporary / INT8))
            if not exact:
                for file in temporary.glob(f"{GRAPH}*"):
                    file.unlink()
        sums = digests(temporary)
        model.tokenizer.save(temporary)
        write_text(temporary / RECIPE, net.recipe.as_yaml())
        if isinstance(model, FineTuned):
            write_text(temporary / TASK, model.told())
        about = About(
            name=net.recipe.name,
            version=bertwright.__version__,
            producer=", ".join(f"{n} {v}" for n, v in versions("torch", *LIBRARIES).items()),
            opset=opset,
            optimisation=LEVEL,
            parent=weights,
            inputs=inputs,
            outputs=outputs,
            max_difference=found.difference,
            reduce_range=reduced,
            ranges=None if ranges is None else ranges.told,
            files={Path(name).name: known for name, known in sums.items()},
        )
        write_text(temporary / CARD, _card(about, model))
        about.write(temporary)
    return Export(tuple(name for name in (GRAPH, INT8) if name in about.files), opset, found)


def _card(about: About, model: TextModel) -> str:
    """The README.md of the folder."""
    tuned = isinstance(model, FineTuned)
    task = f", fine-tuned for {model.task.name}" if tuned else ""
    given = ", ".join(f"`{name}`" for name in about.inputs)
    ranges = "" if about.ranges is None else f", ranges by {about.ranges}"
    lines = [
        f"# {about.name}{task}, as a graph",
        "",
        f"ONNX, operators of version {about.opset}, for rows of any number and length. Inputs "
        f"(int64, rows x places): {given}. Outputs (float32): "
        + ", ".join(f"`{name}`" for name in about.outputs)
        + ".",
        "",
        f"- in float32 onnxruntime differs from the model by {about.max_difference:.2g} at most"
        + (f" (`{GRAPH}`)" if GRAPH in about.files else ""),
        *([f"- in 8 bits: `{INT8}`" + ranges] if about.reduce_range is not None else []),
        f"- made from weights with the SHA-256 sum {about.parent}",
        f"- made with {about.producer}",
        "",
        "```python",
        "import bertwright as bw",
        "",
        'model = bw.load("this folder")',
        f"{'answers' if tuned else 'vectors'} = "
        f'model.{"predict" if tuned else "embed"}(["A sentence.", "Another one."])',
        "```",
    ]
    return "\n".join(line for line in lines if "sum None" not in line) + "\n"
