"""The sample data of the quickstart, as every installation has it: texts, two models, and files that configure them."""

from __future__ import annotations

from importlib import resources

__all__ = ["FILES", "read_sample"]

# What each is for, in the order in which the quickstart uses them
FILES = {
    "tickets.jsonl": "60 support tickets with the fields id, topic and text",
    "tickets.py": "two models: Words returns vectors, Urgency returns scores",
    "job.toml": "a job, to run with: twoshift run job.toml",
    "server.toml": "a server, to start with: twoshift serve --config server.toml",
    "requests.jsonl": "requests in the format of OpenAI's batch API",
}


def read_sample(name: str) -> str:
    """The text of one of the files."""
    return (resources.files(__name__) / name).read_text(encoding="utf-8")
