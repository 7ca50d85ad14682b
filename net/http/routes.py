"""What a service answers over HTTP: the table of all its routes."""

from __future__ import annotations

from ..access import Access
from .login import Login
from .messages import Response
from .pages import Pages
from .router import Route, Visit


def page_routes(access: Access, login: Login, pages: Pages) -> list[Route]:
    """The inspector's page, and the door in front of it."""

    async def home(visit: Visit) -> Response:
        return pages.serve("index.html", visit.request)

    async def page(visit: Visit) -> Response:
        return pages.serve(visit.path["name"], visit.request)

    return [
        Route(method="GET", path="/", handler=home, door="page", text="The inspector's page.", statuses=(200, 304)),
        Route(method="GET", path="/page/{name...}", handler=page, door="page", text="A file of the page.", statuses=(200, 304)),
        Route(
            method="GET",
            path="/login",
            handler=login.form,
            door="public",
            text="The form that takes a token.",
            statuses=(200, 303),
        ),
        Route(
            method="POST",
            path="/login",
            handler=login.enter,
            door="public",
            text="Gives a browser a cookie for a token.",
            body=bytes,
            statuses=(303, 401),
        ),
        Route(method="POST", path="/logout", handler=login.leave, door="public", text="Takes the cookie back.", statuses=(303,)),
    ]
