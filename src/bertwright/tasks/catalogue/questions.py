"""Questions whose answers are spans of a text."""

from bertwright.tasks.answers import SpanAnswer
from bertwright.tasks.formats.questions import QuestionReader
from bertwright.tasks.task import Task

TASKS = (
    Task("squad1", SpanAnswer(), QuestionReader(answerable=True), source="Rajpurkar et al. 2016"),
    Task("squad2", SpanAnswer(unanswerable=True), QuestionReader(), source="Rajpurkar et al. 2018"),
)
