"""A model that needs no network: it calls the tools that the user's message lists.

Each line is the name of a tool and its arguments as JSON. A real application names a model
of a provider instead; nothing else of it changes.
"""

import json

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel


def _script(messages: list[ModelMessage]) -> list[tuple[str, dict]]:
    prompt = next(
        part.content
        for message in messages
        if isinstance(message, ModelRequest)
        for part in message.parts
        if isinstance(part, UserPromptPart)
    )
    lines = [line.partition(" ") for line in str(prompt).splitlines() if line.strip()]
    return [(name, json.loads(arguments or "{}")) for name, _, arguments in lines]


def _results(messages: list[ModelMessage]) -> list[str]:
    return [
        part.model_response_str()
        for message in messages
        if isinstance(message, ModelRequest)
        for part in message.parts
        if isinstance(part, ToolReturnPart)
    ]


def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Calls the next tool of the script; at its end says what all of them gave."""
    script, results = _script(messages), _results(messages)
    if len(results) < len(script):
        name, arguments = script[len(results)]
        offered = sorted(tool.name for tool in info.function_tools)
        if name not in offered:
            return ModelResponse(parts=[TextPart(f"no tool {name} among {offered}")])
        return ModelResponse(parts=[ToolCallPart(name, arguments)])
    return ModelResponse(parts=[TextPart("\n".join(results).strip() or "(no output)")])


SCRIPTED = FunctionModel(answer)
