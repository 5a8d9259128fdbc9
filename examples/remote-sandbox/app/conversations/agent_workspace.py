"""The same agent, whose tools work in a `SandboxdWorkspace` (pydantic-ai-backend 0.2.37)."""

from collections.abc import Iterator
from contextlib import contextmanager

from pydantic_ai import Agent
from pydantic_ai_backends import ConsoleCapability
from pydantic_ai_backends.permissions import PERMISSIVE_RULESET
from pydantic_ai_backends.workspaces import SandboxdWorkspace

from . import model, settings


@contextmanager
def agent_for(session_id: str, tenant: str) -> Iterator[Agent]:
    """Makes an agent with the sandbox of that id; nothing is sent here."""
    workspace = SandboxdWorkspace(
        service_url=settings.SERVICE_URL,
        token=settings.SERVICE_TOKEN,
        session_name=session_id,
        tenant=tenant,
        runtime=settings.RUNTIME,
    )
    console = ConsoleCapability(permissions=PERMISSIVE_RULESET)
    yield Agent(model.SCRIPTED, capabilities=[workspace, console])
