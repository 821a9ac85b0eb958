"""Multiple choice."""

from bertwright.tasks.answers import OptionAnswer
from bertwright.tasks.formats.options import CodahReader, DreamReader, RaceReader, SwagReader
from bertwright.tasks.task import Task

TASKS = (
    Task("race", OptionAnswer(), RaceReader(), source="Lai et al. 2017"),
    Task("swag", OptionAnswer(), SwagReader(), source="Zellers et al. 2018"),
    Task("codah", OptionAnswer(), CodahReader(), source="Chen et al. 2019"),
    Task("dream", OptionAnswer(), DreamReader(), source="Sun et al. 2019"),
)
