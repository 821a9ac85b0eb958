"""Work on a Ray cluster: the connection, and a parallel map with results in order.

The cluster is the one at ``RAY_ADDRESS``, or one that Ray starts on this machine. Every node needs
the same versions of Python and of bertwright.
"""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from secrets import token_hex
from typing import Any

from bertwright.core.errors import MissingExtra, UserError
from bertwright.core.messages import first_line
from bertwright.core.parallel import ITEMS_AHEAD, PARALLELISM_VARIABLE, Item, Result

MAX_RETRIES = 10
"""Number of times that an item is computed again, after a node or a worker process was lost."""


def connect() -> Any:
    """Return the library ``ray``, connected to a cluster.

    Errors: MissingExtra; UserError if there is no cluster at ``RAY_ADDRESS``.
    """
    try:
        import ray
    except ImportError as error:
        raise MissingExtra("ray", "ray") from error
    if not ray.is_initialized():
        address = os.environ.get("RAY_ADDRESS")
        try:
            ray.init(address=address, log_to_driver=False)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise UserError(
                f"no Ray cluster at {address or 'this machine'} ({first_line(error)}): start one "
                f"with 'ray start --head' and set RAY_ADDRESS to its address"
            ) from None
    return ray


def map_on_ray(
    make_function: Callable[..., Callable[[Item], Result]],
    arguments: tuple[Any, ...],
    items: Iterable[Item],
) -> Iterator[Result]:
    """Yield the results of ``make_function(*arguments)`` for every item, in order.

    Each item is a task. A task whose node is lost, or whose result is lost with its node, runs
    again on another node, so the results do not depend on the nodes. Items are read a few ahead of
    the results, in proportion to the cores that the cluster has at that moment.
    """
    ray = connect()
    from ray import exceptions

    # In the memory of this node, which is needed in any case.
    reference = [ray.put((make_function, arguments))]
    task: Any = ray.remote(max_retries=MAX_RETRIES)(_apply)
    key, pending = token_hex(8), deque[Any]()
    try:
        for item in items:
            pending.append(task.remote(key, reference, item))
            while len(pending) > ITEMS_AHEAD * max(1, ray.cluster_resources().get("CPU", 1)):
                yield ray.get(pending.popleft())
        while pending:
            yield ray.get(pending.popleft())
    except exceptions.RayTaskError as error:
        if isinstance(error.cause, UserError):
            raise error.cause from None
        raise
    except exceptions.RayError as error:
        raise UserError(
            f"the Ray cluster lost a task and could not repeat it ({first_line(error)}): look at "
            f"its nodes with 'ray status'; fewer tasks per node need less memory"
        ) from error
    finally:
        for left in pending:
            ray.cancel(left)


_functions: dict[str, Callable[[Any], Any]] = {}
"""The function of the current map in this worker process, by the key of the map."""


def _apply(key: str, reference: list[Any], item: Any) -> Any:
    """Apply the function of a map, which is made once per worker process."""
    if key not in _functions:
        import ray

        os.environ[PARALLELISM_VARIABLE] = "false"  # a task has one core
        make_function, arguments = ray.get(reference[0])
        _functions.clear()
        _functions[key] = make_function(*arguments)
    return _functions[key](item)
