"""JSON schemas as vLLM's grammars."""

from __future__ import annotations

from typing import Any

from twoshift.errors import InvalidInput
from twoshift.extras import needed
from twoshift.runtime.llm.schemas import check_schema

__all__ = ["GRAMMARS", "check_grammar", "structured_outputs"]

GRAMMARS = "xgrammar"  # and no other: what is checked is what generates


def check_grammar(schema: str) -> None:
    """Raises InvalidInput where answers would not keep to it, or its grammar would be too dear."""
    if _is_any_object(schema):
        return
    check_schema(schema)
    try:
        needed(GRAMMARS, "vllm", "a schema").Grammar.from_json_schema(schema)
    except Exception as error:  # it has several, and tells where in its code
        told = str(error).strip().rpartition(": ")[2]
        raise InvalidInput("json_schema", schema, f"a schema that can be compiled to a grammar ({told})") from error


def structured_outputs(schema: str | None) -> Any:
    """As vLLM has them, for a schema that is checked."""
    if schema is None:
        return None
    from vllm.sampling_params import StructuredOutputsParams

    asked: dict[str, Any] = {"json_object": True} if _is_any_object(schema) else {"json": schema}
    made: Any = StructuredOutputsParams(**asked)
    made._backend = GRAMMARS  # which vLLM's own check would note
    return made


def _is_any_object(schema: str) -> bool:
    return schema.strip() in ("", "{}")
