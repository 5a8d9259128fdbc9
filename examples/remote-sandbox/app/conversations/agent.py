"""Chooses the client library by which the agent reaches its sandbox."""

import importlib.metadata

_VERSION = tuple(map(int, importlib.metadata.version("pydantic-ai-backend").split(".")[:3]))

if _VERSION < (0, 2, 30):
    from .agent_remote import agent_for
else:
    from .agent_workspace import agent_for

__all__ = ["agent_for"]
