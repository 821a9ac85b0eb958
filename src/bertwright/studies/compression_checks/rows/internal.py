"""A student that learns where its teacher looks: all layers together, or from the lowest up."""

from bertwright.analysis.planted.expecting import equal
from bertwright.compression.distillation import Distillation
from bertwright.compression.layer_map import LayerMap
from bertwright.compression.signals import AttentionMaps, Signal
from bertwright.compression.students import layers_taken, shortened
from bertwright.schedules import Constant
from bertwright.studies.compression_checks.first_steps import first_step, steps_of
from bertwright.studies.compression_checks.ground import Ground
from bertwright.studies.compression_checks.row import Came, Measured, Row

TASK = "inference"
PAIRS = ("1-2", "2-4")
NONE = Constant(value=0.0)

TAUGHT = (
    {"kind": "attention", "of": "weights"},
    {"kind": "states", "places": "first", "distance": "cosine"},
)
AFTERWARDS = {"labels": 0.5, "signals": [{"kind": "outputs", "temperature": 2, "weight": 0.5}]}


def run(ground: Ground) -> Came:
    """What each layer learns while it is its turn, and what becomes of the task."""
    teacher = ground.tuned(TASK)
    yield from _identities(ground)
    yield from _in_turns(ground)
    scores: dict[str, list[float]] = {}
    for order in ("upwards", "in-turn", "together"):
        inside = {"labels": 0, "signals": [{**each, "order": order} for each in TAUGHT]}
        method = ground.method(f"c3-{order}", {"stages": [inside, AFTERWARDS]})
        scores[order] = ground.compressed(teacher, method).scores
    for order in ("upwards", "in-turn"):
        yield Measured(f"accuracy, {order}", scores[order], "together", scores["together"])


def _identities(ground: Ground) -> Came:
    """A student that is its teacher has nothing to learn."""
    teacher = ground.tuned(TASK)
    signals = [Signal.choose({**each, "order": "upwards"}) for each in TAUGHT]
    told = Distillation(teacher, signals, NONE)
    examples, settings = ground.examples(TASK)[:16], ground.settings()
    report = first_step(teacher, teacher.task, examples, told, **settings)
    for name in ("attention", "states"):
        yield equal(f"{name} of a student that is its teacher", report.losses[name], 0, 1e-6)
    yield equal("the gradient of both", report.norm, 0, 1e-4)


def _in_turns(ground: Ground) -> Came:
    """Only the lower layer is taught at first, then both; each is listened to throughout."""
    teacher = ground.tuned(TASK)
    alone = [AttentionMaps(of="weights", layers=LayerMap(pairs=p), weight=NONE) for p in PAIRS]
    upwards = AttentionMaps(of="weights", order="upwards")
    told = Distillation(teacher, [upwards, *alone], NONE)
    student = shortened(ground.pretrained, layers_taken(2, 4))
    before: list[float] = []
    apart = 0.0
    for seed in ground.seeds:
        examples = ground.examples(TASK)[: ground.size.examples]
        reports = steps_of(student, teacher.task, examples, told, **ground.settings(seed))
        lower = [report.losses["attention 2"] for report in reports]
        for report in reports:
            losses = report.losses
            both = report.place.progress >= 0.5
            taught = losses["attention 2"] + (losses["attention 3"] if both else 0.0)
            apart = max(apart, abs(losses["attention"] - taught))
        half = next(n for n, report in enumerate(reports) if report.place.progress >= 0.5)
        before.append((lower[0] - lower[half]) / max(lower[0] - min(lower), 1e-9))
    yield equal("what is taught, less the layers whose turn it is", apart, 0, 1e-5)
    yield Measured("of all that the lower layer learns, the share before the upper begins", before)


ROW = Row(
    "C3",
    "internal",
    "Has a layer learned its part before the next one begins, and does the order matter?",
    "Aguilar et al. 2020",
    run,
)
