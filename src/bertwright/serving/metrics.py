"""What is counted, in the format of Prometheus."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
ROWS = tuple(2**power for power in range(11))


class Metrics:
    """The counts of one server."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self._requests = Counter(
            "bertwright_requests", "Requests, by status.", ("path", "status"), registry=registry
        )
        self._seconds = Histogram(
            "bertwright_request_seconds",
            "From the head of a request to its answer.",
            ("path",),
            buckets=SECONDS,
            registry=registry,
        )
        self._waiting = Gauge(
            "bertwright_queue_tokens", "Tokens that wait.", ("model",), registry=registry
        )
        self._rows = Histogram(
            "bertwright_batch_rows",
            "Rows of a batch.",
            ("model",),
            buckets=ROWS,
            registry=registry,
        )
        self._tokens = Counter(
            "bertwright_tokens", "Tokens that were computed.", ("model",), registry=registry
        )

    def answered(self, path: str, status: int, seconds: float) -> None:
        """Count a request; ``path`` is that of an endpoint."""
        self._requests.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def note_of(self, model: str) -> Callable[[int, int], None]:
        """What counts the batches of a model."""
        rows, tokens = self._rows.labels(model), self._tokens.labels(model)

        def note(num_rows: int, num_tokens: int) -> None:
            rows.observe(num_rows)
            tokens.inc(num_tokens)

        return note

    def watch(self, model: str, waiting: Callable[[], float]) -> None:
        """Ask for the tokens that wait for a model whenever counts are read."""
        self._waiting.labels(model).set_function(waiting)

    def text(self) -> bytes:
        """All counts."""
        return generate_latest(self._registry)
