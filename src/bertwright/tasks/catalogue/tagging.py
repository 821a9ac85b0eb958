"""Tasks of tagged words."""

from bertwright.tasks.answers import TagAnswer
from bertwright.tasks.catalogue.making import tagging_task
from bertwright.tasks.restoration import TAGS, RestorationReader
from bertwright.tasks.task import Task

_EVERY_WORD = ("accuracy", "macro-f1")

TASKS = (
    tagging_task("ner"),
    tagging_task("conll2003", source="Tjong Kim Sang and De Meulder 2003"),
    tagging_task("iob2"),
    tagging_task("upos", "upos", _EVERY_WORD),
    tagging_task("xpos", "xpos", _EVERY_WORD),
    tagging_task("feats", "feats", _EVERY_WORD),
    Task("restoration", TagAnswer(), RestorationReader(), ("macro-f1", "accuracy"), TAGS),
)
