"""Prometheus metrics of the server."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
BATCH_SIZE_BUCKETS = tuple(2**power for power in range(11))


class Metrics:
    """The metrics of one server."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self._requests = Counter(
            "bertwright_requests", "Requests, by status.", ("path", "status"), registry=registry
        )
        self._seconds = Histogram(
            "bertwright_request_seconds",
            "Time from the headers of a request to the response.",
            ("path",),
            buckets=SECONDS_BUCKETS,
            registry=registry,
        )
        self._queue_tokens = Gauge(
            "bertwright_queue_tokens", "Waiting tokens.", ("model",), registry=registry
        )
        self._batch_size = Histogram(
            "bertwright_batch_size",
            "Sequences per batch.",
            ("model",),
            buckets=BATCH_SIZE_BUCKETS,
            registry=registry,
        )
        self._tokens = Counter(
            "bertwright_tokens", "Computed tokens.", ("model",), registry=registry
        )

    def record_request(self, path: str, status: int, seconds: float) -> None:
        """Count a request to the path of an endpoint, with its status and duration."""
        self._requests.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def batch_recorder(self, model: str) -> Callable[[int, int], None]:
        """Return a function that records the batches of a model."""
        batch_size, tokens = self._batch_size.labels(model), self._tokens.labels(model)

        def record(num_sequences: int, num_tokens: int) -> None:
            batch_size.observe(num_sequences)
            tokens.inc(num_tokens)

        return record

    def watch_queue(self, model: str, queue_tokens: Callable[[], float]) -> None:
        """Register the function that returns the waiting tokens of a model."""
        self._queue_tokens.labels(model).set_function(queue_tokens)

    def render(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        return generate_latest(self._registry)
