"""An agent whose tools work in a `RemoteSandbox` (pydantic-ai-backend before 0.2.30)."""

from collections.abc import Iterator
from contextlib import contextmanager

from pydantic_ai import Agent
from pydantic_ai_backends import ConsoleCapability
from pydantic_ai_backends.permissions import PERMISSIVE_RULESET
from pydantic_ai_backends.remote import RemoteSandbox

from . import model, settings


@contextmanager
def agent_for(session_id: str, tenant: str) -> Iterator[Agent]:
    """Makes an agent with the sandbox of that id.

    Nothing is sent here: the first tool opens the session, or joins the one that is open,
    so a turn that needs no tool costs no sandbox.
    """
    sandbox = RemoteSandbox(
        settings.SERVICE_URL,
        token=settings.SERVICE_TOKEN,
        session_id=session_id,
        tenant=tenant,
        runtime=settings.RUNTIME,
        reuse=True,
    )
    console = ConsoleCapability(backend=sandbox, permissions=PERMISSIVE_RULESET)
    yield Agent(model.SCRIPTED, capabilities=[console])
