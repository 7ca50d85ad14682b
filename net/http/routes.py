"""What a service answers over HTTP: the table of all its routes."""

from __future__ import annotations

from collections.abc import Sequence

from .blobs import Blobs
from .completions import Completions
from .dialect import ChatRequest
from .health import Health, Probes, Readiness
from .login import Login
from .messages import Response, to_json
from .metrics import Metrics
from .openapi import document
from .pages import Pages
from .router import Route, Visit
from .webhooks import Webhooks


def page_routes(login: Login, pages: Pages, blobs: Blobs) -> list[Route]:
    """The inspector's page, the door in front of it, and the pictures and files that it shows."""

    async def home(visit: Visit) -> Response:
        return pages.serve("index.html", visit.request)

    async def page(visit: Visit) -> Response:
        return pages.serve(visit.path["name"], visit.request)

    form = "The form that takes a token."
    return [
        Route(method="GET", path="/", handler=home, door="page", text="The inspector's page.", statuses=(200, 304)),
        Route(method="GET", path="/page/{name...}", handler=page, door="page", text="A file of the page.", statuses=(200, 304)),
        Route(method="GET", path="/login", handler=login.form, door="public", text=form, statuses=(200, 303)),
        Route(
            method="POST",
            path="/login",
            handler=login.enter,
            door="public",
            text="Gives a browser a cookie for a token.",
            body=bytes,
            most=16 * 1024,
            statuses=(303, 401),
        ),
        Route(
            method="GET",
            path="/blobs/{digest}",
            handler=blobs.show,
            door="read",
            text="A picture or file that the record `seq` of the log of `agent` tells of.",
        ),
        Route(method="POST", path="/logout", handler=login.leave, door="public", text="Takes the cookie back.", statuses=(303,)),
    ]


def probe_routes(probes: Probes, metrics: Metrics) -> list[Route]:
    """What those who run a service ask it."""
    return [
        Route(
            method="GET",
            path="/healthz",
            handler=probes.live,
            door="public",
            text="Whether the process lives.",
            result=Health,
            probe=True,
        ),
        Route(
            method="GET",
            path="/readyz",
            handler=probes.ready,
            door="public",
            text="Whether work may be sent, and what start-up took up.",
            result=Readiness,
            statuses=(200, 503),
            probe=True,
        ),
        Route(method="GET", path="/metrics", handler=metrics.show, door="read", text="Figures for Prometheus.", probe=True),
    ]


def agent_routes(completions: Completions, webhooks: Webhooks) -> list[Route]:
    """Ways to talk to agents."""
    chat = "Sends a prompt to an agent, and gives its answer, with `stream` as it comes."
    return [
        Route(
            method="GET",
            path="/v1/models",
            handler=completions.models,
            door="read",
            text="The definitions that a request may name as its model.",
            dialect="openai",
        ),
        Route(
            method="GET",
            path="/v1/models/{name}",
            handler=completions.model,
            door="read",
            text="One definition.",
            dialect="openai",
        ),
        Route(
            method="POST",
            path="/v1/chat/completions",
            handler=completions.complete,
            door="send",
            text=chat,
            body=ChatRequest,
            dialect="openai",
            waits=True,
        ),
        Route(
            method="POST",
            path="/v1/channels/{name}",
            handler=webhooks.receive,
            door="public",
            text="Hands a webhook to a channel, which checks who sent it.",
            body=bytes,
            statuses=(202,),
        ),
    ]


def with_document(routes: Sequence[Route], version: str) -> list[Route]:
    """These routes, and the one that describes them all."""

    async def describe(visit: Visit) -> Response:
        return to_json(document(table, version))

    described = Route(method="GET", path="/openapi.json", handler=describe, door="page", text="This document.")
    table = [*routes, described]
    return table
