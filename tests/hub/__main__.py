"""Use a model through a Hub on loopback: ``python -m tests.hub MODEL --document FILE``.

The real clients talk to a server that speaks the Hub's API; every command is a process of its own.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.markdown_sections import write_section
from bertwright.runtime.markdown_report import markdown_table
from tests.support.hub_server import TOKEN, Hub, hub_environment, running_hub

TEXTS = ("The keeper lights the lamp.", "The ship sails at dawn.", "It rains.") * 20
FULL_DISK = "import resource as r; r.setrlimit(r.RLIMIT_FSIZE, (1 << 16, -1)); "
START = "from bertwright.cli.app import main; main()"
COLUMNS = {
    "step": "step",
    "outcome": "outcome",
    "megabytes": "MB sent by the Hub",
    "seconds": "seconds",
}


@dataclass
class Session:
    """A Hub with a model, and a folder to work in, whose caches are empty."""

    hub: Hub
    model: Path
    folder: Path
    local: Any = None
    environment: dict[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        self.environment = {**os.environ, **hub_environment(self.hub, self.folder / "hugging-face")}
        self.environment["XDG_CACHE_HOME"] = str(self.folder / "cache")
        self.environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
        self.hub.add("me/model", self.model)
        (self.folder / "texts.txt").write_text("\n".join(TEXTS) + "\n")
        rows = (json.dumps({"text": text, "number": n}) for n, text in enumerate(TEXTS))
        (self.folder / "train.jsonl").write_text("\n".join(rows) + "\n")
        self.hub.add(
            "me/text", {"train.jsonl": (self.folder / "train.jsonl").read_bytes()}, "dataset"
        )
        self.local = self.embed(str(self.model.resolve()))

    def run(self, *words: str, code: int = 0, prefix: str = "", **variables: str) -> str:
        """Run a command, which must end with an exit code; return stdout and stderr."""
        process = subprocess.run(
            [sys.executable, "-c", prefix + START, *words],
            cwd=self.folder,
            env=self.environment | variables,
            capture_output=True,
            text=True,
            check=False,
        )
        output = process.stdout + process.stderr
        if process.returncode != code:
            raise SystemExit(f"{' '.join(words)} ends with {process.returncode}:\n{output}")
        return output

    def embed(self, model: str, **variables: str) -> Any:
        """Return the vectors of the texts."""
        self.run(
            *("embed", model, "texts.txt", "-o", "vectors.npy", "--precision", "float32"),
            **variables,
        )
        return np.load(self.folder / "vectors.npy")

    def refused(self, model: str, part: str, prefix: str = "", **variables: str) -> str:
        """Return the outcome of a model that must be refused with one sentence."""
        output = self.run("embed", model, "texts.txt", code=2, prefix=prefix, **variables)
        message = output.strip().splitlines()[-1]
        assert part in message, output
        return f"exit code 2: {message.removeprefix('bertwright: ')}"

    def clear_cache(self) -> None:
        """Use an empty cache from here on."""
        self.environment["HF_HOME"] += "-"

    def require_equal(self, vectors: Any) -> str:
        """Return the outcome of vectors that must be those of the local folder."""
        assert np.array_equal(vectors, self.local)
        return "the vectors of the local folder, to the last bit"


def load(session: Session) -> str:
    return session.require_equal(session.embed("me/model"))


def offline(session: Session) -> str:
    return session.require_equal(session.embed("me/model", HF_HUB_OFFLINE="1"))


def offline_and_unknown(session: Session) -> str:
    return session.refused("me/other", "HF_HUB_OFFLINE is set", HF_HUB_OFFLINE="1")


def cut(session: Session) -> str:
    session.clear_cache()
    size = (session.model / "model.safetensors").stat().st_size
    session.hub.cut_after, before = [size // 3, size // 3], len(session.hub.requests)
    outcome = session.require_equal(session.embed("me/model"))
    requests = [line for line in session.hub.requests[before:] if "/lfs/" in line]
    resumed = sum("bytes=" in request for request in requests)
    return f"{len(requests)} requests, {resumed} of them resumed; {outcome}"


def wrong_hash(session: Session) -> str:
    session.clear_cache()
    weights = (session.model / "model.safetensors").read_bytes()
    session.hub.replaced["model.safetensors"] = weights[:-1] + bytes([weights[-1] ^ 1])
    outcome = session.refused("me/model", "differs from the hash")
    session.hub.replaced.clear()
    return outcome


def full_disk(session: Session) -> str:
    session.clear_cache()
    return session.refused("me/model", "free some space", FULL_DISK)


def gated(session: Session) -> str:
    session.clear_cache()
    session.hub.repositories["models/me/model"].is_gated = True
    outcome = session.refused("me/model", "is gated")
    session.hub.repositories["models/me/model"].is_gated = False
    return outcome


def missing(session: Session) -> str:
    return session.refused("me/none", "neither a folder nor a model")


def push(session: Session) -> str:
    words = ("export", "me/model", "-o", "export", "--push", "me/pushed", "--json")
    output = session.run(*words, HF_TOKEN=TOKEN)
    report = json.loads(next(line for line in output.splitlines() if line.startswith("{")))
    difference = np.abs(session.embed("me/pushed") - session.local).max()
    return (
        f"one commit; outputs of the stock class within {report['max_difference']:.1g}; loaded "
        f"again, the vectors differ by at most {difference:.1g}"
    )


def prepare(session: Session) -> str:
    for source, output in (("hf:me/text", "named"), ("train.jsonl", "local")):
        session.run("prepare", source, "--tokenizer", "me/model", "-o", output)
    files = [
        {f.name: f.read_bytes() for f in (session.folder / name).glob("*.bin")}
        for name in ("named", "local")
    ]
    assert files[0] == files[1]
    return "the tokens of the file, to the last byte"


STEPS: Mapping[str, Callable[[Session], str]] = {
    "load": load,
    "load again": load,
    "offline, in the cache": offline,
    "offline, unknown": offline_and_unknown,
    "connection cut twice": cut,
    "wrong hash": wrong_hash,
    "right hash, after it": load,
    "full disk": full_disk,
    "gated": gated,
    "missing": missing,
    "push": push,
    "prepare, streamed": prepare,
}


def run_steps(model: Path) -> Iterator[dict[str, Any]]:
    """Yield a row of the table for every step."""
    with running_hub() as hub, tempfile.TemporaryDirectory() as folder:
        session = Session(hub, model, Path(folder))
        for name, step in STEPS.items():
            start, sent = time.monotonic(), hub.sent_bytes
            outcome = step(session).replace(hub.url, "ENDPOINT").replace(folder, "CACHE")
            yield {
                "step": name,
                "outcome": outcome,
                "megabytes": (hub.sent_bytes - sent) / 1e6,
                "seconds": time.monotonic() - start,
            }


def main() -> None:
    """Run every step and print the table; exit with 1 if one fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.hub", description=__doc__)
    parser.add_argument("model", type=Path, help="pre-trained model folder")
    parser.add_argument("--document", type=Path, help="Markdown file to write the table into")
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for row in run_steps(arguments.model):
        print(f"{row['step']}: {row['outcome']}", flush=True)
        rows.append(row)
    lines = markdown_table(COLUMNS, rows)
    if arguments.document is not None:
        write_section(arguments.document, "hub on loopback", lines)


if __name__ == "__main__":
    main()
