"""The application's own HTTP interface. No browser ever gets a token of sandboxd."""

import uuid
from typing import Annotated

from fastapi import Depends, FastAPI, Header, HTTPException, Request
from fastapi.responses import JSONResponse, PlainTextResponse
from pydantic import BaseModel
from pydantic_ai_backends.remote import WorkspaceArchive, WorkspaceArchiveError

from . import service, settings, store
from .agent import agent_for
from .scopes import Context, Scope, session_id_for

AGENT_ID = uuid.UUID("6f0f6f6e-6b1f-4a52-9c2b-3f8f3f1f6a11")

app = FastAPI()
archive = WorkspaceArchive(settings.SERVICE_URL, token=settings.SERVICE_TOKEN)


@app.exception_handler(service.ServiceError)
def refused(_: Request, error: service.ServiceError) -> JSONResponse:
    """Passes on what sandboxd said."""
    return JSONResponse({"detail": str(error)}, status_code=error.status)


@app.exception_handler(WorkspaceArchiveError)
def unreadable(_: Request, error: WorkspaceArchiveError) -> JSONResponse:
    """Passes on why files cannot be shown; 502 where the service was not reached."""
    return JSONResponse({"detail": str(error)}, status_code=error.status_code or 502)


def signed_in(authorization: Annotated[str, Header()] = "") -> settings.User:
    """Tells who asks."""
    user = settings.USERS.get(authorization.removeprefix("Bearer "))
    if user is None:
        raise HTTPException(401, "sign in first")
    return user


CurrentUser = Annotated[settings.User, Depends(signed_in)]


def operator(user: CurrentUser) -> settings.User:
    """Lets only operators in."""
    if not user.is_operator:
        raise HTTPException(403, "this is for operators")
    return user


def authorized(conversation_id: uuid.UUID, user: CurrentUser) -> store.Conversation:
    """Finds a conversation of the user's own; somebody else's is as good as none."""
    conversation = store.find(conversation_id)
    if conversation is None or conversation.user_id != user.user_id:
        raise HTTPException(404, "there is no such conversation")
    return conversation


Mine = Annotated[store.Conversation, Depends(authorized)]


def session_of(conversation: store.Conversation, run_id: uuid.UUID | None = None) -> str:
    """Names the sandbox of a conversation."""
    context = Context(
        tenant_id=conversation.tenant_id,
        user_id=conversation.user_id,
        agent_id=AGENT_ID,
        conversation_id=conversation.conversation_id,
        run_id=run_id or uuid.uuid4(),
    )
    return session_id_for(conversation.scope, context)


class NewConversation(BaseModel):
    """What a conversation begins with."""

    scope: Scope = "conversation"


class Message(BaseModel):
    """What a user says."""

    text: str


@app.post("/conversations")
def begin(body: NewConversation, user: CurrentUser) -> dict:
    """Begins a conversation. No sandbox is made for it yet."""
    conversation = store.add(user, body.scope)
    return {"id": str(conversation.conversation_id), "session": session_of(conversation)}


@app.post("/conversations/{conversation_id}/messages")
async def say(body: Message, conversation: Mine) -> dict:
    """Has the agent answer."""
    session_id = session_of(conversation, run_id=uuid.uuid4())
    try:
        with agent_for(session_id, tenant=conversation.tenant_id.hex) as agent:
            result = await agent.run(body.text)
    finally:
        if conversation.scope == "run":
            # Nobody comes back to it, and until it is idle it would take a place.
            await service.purge(session_id)
    return {"answer": result.output, "session": session_id}


@app.get("/conversations/{conversation_id}/files")
def list_files(conversation: Mine, path: str = ".") -> list[dict]:
    """Lists files, also long after the sandbox was reaped: no container starts for it."""
    return list(archive.ls(session_of(conversation), path))


@app.get("/conversations/{conversation_id}/files/{path:path}")
def read_file(conversation: Mine, path: str) -> PlainTextResponse:
    """Shows a file."""
    return PlainTextResponse(archive.read(session_of(conversation), path))


@app.get("/conversations/{conversation_id}/events")
async def list_events(conversation: Mine) -> list[dict]:
    """Shows what the agent did."""
    return await service.events(session_of(conversation))


@app.delete("/conversations/{conversation_id}", status_code=204)
async def delete(conversation: Mine) -> None:
    """Deletes a conversation with its sandbox, unless that is shared with others."""
    if conversation.scope == "conversation":
        # First: a conversation that is gone from here can be purged by nobody.
        await service.purge(session_of(conversation))
    store.remove(conversation.conversation_id)


@app.get("/capacity")
async def show_capacity(_: CurrentUser) -> dict:
    """Shows how full the service is."""
    return await service.capacity()


@app.get("/operator/sessions", dependencies=[Depends(operator)])
async def show_sessions() -> list[dict]:
    """Shows the live sessions with memory against its ceiling."""
    return await service.sessions()


@app.get("/healthz")
def health() -> dict:
    """Tells that the application answers."""
    return {"status": "ok"}
