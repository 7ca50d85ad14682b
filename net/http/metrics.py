"""`/metrics`: the counters of system and service in the form that Prometheus reads.

Nothing is counted here. What the system and the service count anyway is translated when somebody asks, into a registry of its
own, so that two systems in one process do not meet. Times are in seconds, names as Prometheus has them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ...actors.system import System
from ...storage.messages import Usage
from ...storage.timings import Histogram
from .failures import Refused
from .messages import Response
from .router import Visit

KINDS = ("input", "output", "cache_read", "cache_write", "reasoning")


class Metrics:
    """The handler, over what tells the figures."""

    def __init__(self, system: Callable[[], System | None], service: Callable[[], Mapping[str, Any]]) -> None:
        self._system, self._service = system, service
        self._registry: Any = None

    async def show(self, visit: Visit) -> Response:
        """All figures, in the form that was asked for.

        Raises:
            Refused: 501: prometheus-client is not installed.
        """
        try:
            from prometheus_client import CollectorRegistry
            from prometheus_client.exposition import choose_encoder
        except ImportError as error:
            raise Refused(501, "metrics need prometheus-client: pip install 'callboard[net]'") from error
        if self._registry is None:
            self._registry = CollectorRegistry()
            self._registry.register(self)
        encode, media_type = choose_encoder(visit.request.headers.get("accept", ""))
        return Response(encode(self._registry), media_type=media_type)

    def describe(self) -> Iterator[Any]:
        """Nothing beforehand: the registry would collect everything once, to learn the names."""
        yield from ()

    def collect(self) -> Iterator[Any]:
        """Every figure, for the registry."""
        system = self._system()
        if system is not None:
            found = system.statistics()
            yield from _work(found["done"])
            yield from _store(found)
            yield from _channels(found["channels"])
        yield from _connections(self._service())


def _work(done: Mapping[str, Any]) -> Iterator[Any]:
    turns = _counter("callboard_turns", "Turns that have ended, by the reason of their end.", ("definition", "reason"))
    for (definition, reason), count in done["turns"].items():
        turns.add_metric((definition, reason), count)
    yield turns
    steps = _counter("callboard_steps", "Steps (model calls with their tools) of turns that have ended.", ("definition",))
    for definition, count in done["steps"].items():
        steps.add_metric((definition,), count)
    yield steps
    tokens = _counter("callboard_tokens", "Tokens of turns that have ended, in disjoint kinds.", ("definition", "kind"))
    for definition, usage in done["usage"].items():
        for kind, count in _kinds(usage):
            tokens.add_metric((definition, kind), count)
    yield tokens
    errors = _counter("callboard_turn_errors", "Turns that ended with an error or at a limit, by its code.", ("code",))
    for code, count in done["errors"].items():
        errors.add_metric((code,), count)
    yield errors
    attempts = _counter("callboard_failed_attempts", "Model calls that failed, also those that were tried again.", ("code",))
    for code, count in done["failed_attempts"].items():
        attempts.add_metric((code,), count)
    yield attempts
    yield _histogram(
        "callboard_turn_duration_seconds", "From a turn's start to its end, waits for people included.", done["turn_seconds"]
    )


def _kinds(usage: Usage) -> Iterator[tuple[str, int]]:
    for kind in KINDS:
        yield kind, getattr(usage, kind)


def _store(found: Mapping[str, Any]) -> Iterator[Any]:
    writer = found["writer"]
    yield _histogram(
        "callboard_flush_duration_seconds", "One synced commit of everything that was ready.", writer["flush_seconds"]
    )
    yield _gauge("callboard_flush_running_seconds", "How long the present flush has taken.", writer["flushing_s"])
    yield _gauge("callboard_logs_unwritten", "Logs with records that are not on disk yet.", writer["dirty"])
    yield _gauge("callboard_agents_in_memory", "Agents that are open.", found["agents"])
    yield _gauge("callboard_agents_running", "Agents with an open turn.", found["running"])
    yield _gauge("callboard_agents_asleep", "Open turns that wait for a person.", found["asleep"])
    yield _gauge("callboard_inbox_messages", "Messages that wait in the inboxes of open agents.", found["pending"])
    yield _gauge("callboard_outbox_replies", "Replies of open agents that no channel has taken yet.", found["outbox"])
    yield _gauge("callboard_records_unwritten", "Records that are not on disk yet.", found["uncommitted"])
    yield _gauge(
        "callboard_records_unseen", "Records that plugins which observe have still to see.", found["observers"]["unseen"]
    )
    yield _gauge("callboard_timers", "What is set for a time.", found["schedule"])
    yield _gauge("callboard_tool_bodies", "Tool bodies that run.", found["bodies"])
    yield _gauge("callboard_waits", "Tasks that wait for an agent.", found["waits"])
    yield _gauge("callboard_stray_bodies", "Tool bodies that ignore their cancellation.", len(found["strays"]))
    calls = _gauges("callboard_model_calls", "Model calls, by what they are at.", ("provider", "state"))
    for provider, counts in found["models"].items():
        for state, count in counts.items():
            calls.add_metric((provider, state), count)
    yield calls


def _channels(channels: Mapping[str, Mapping[str, Any]]) -> Iterator[Any]:
    queue = _gauges("callboard_channel_queue", "Replies on their way to a channel, by what they wait for.", ("channel", "state"))
    passed = _counter(
        "callboard_channel_messages", "Messages of a channel, in and out, by what became of them.", ("channel", "fate")
    )
    for name, counts in channels.items():
        for state in ("waiting", "active", "retrying"):
            queue.add_metric((name, state), int(counts[state]))
        for fate in ("accepted", "refused", "sent", "failed", "retried"):
            passed.add_metric((name, fate), counts[fate])
    yield queue
    yield passed


def _connections(service: Mapping[str, Any]) -> Iterator[Any]:
    yield _gauge("callboard_connections", "WebSocket connections.", service["connections"])
    yield _gauge("callboard_followers", "Streams of records that are open.", service["followers"])
    yield _gauge("callboard_http_requests_waiting", "HTTP requests at their handlers.", service["requests"])
    feeds = {"encoded": 0, "bytes": 0, **service["feeds"]}
    encoded = _counter("callboard_records_encoded", "Records encoded for followers, each once for all of them.", ())
    encoded.add_metric((), feeds["encoded"])
    yield encoded
    yield _gauge("callboard_feed_bytes", "Encoded records kept for the next follower.", feeds["bytes"])
    http = _counter("callboard_http_requests", "HTTP requests that were answered, by route and status.", ("route", "status"))
    for (route, status), count in service["answered"].items():
        http.add_metric((route, str(status)), count)
    yield http
    tokens = _counter(
        "callboard_credentials_refused",
        "Tokens that let nobody in: wrong ones, and those that came while their address had to wait.",
        ("why",),
    )
    for why, key in (("wrong", "wrong"), ("throttled", "refused")):
        tokens.add_metric((why,), service["tokens"][key])
    yield tokens


def _counter(name: str, text: str, labels: tuple[str, ...]) -> Any:
    from prometheus_client.core import CounterMetricFamily

    return CounterMetricFamily(name, text, labels=labels)


def _gauge(name: str, text: str, value: float) -> Any:
    from prometheus_client.core import GaugeMetricFamily

    return GaugeMetricFamily(name, text, value=value)


def _gauges(name: str, text: str, labels: tuple[str, ...]) -> Any:
    from prometheus_client.core import GaugeMetricFamily

    return GaugeMetricFamily(name, text, labels=labels)


def _histogram(name: str, text: str, read: Histogram) -> Any:
    from prometheus_client.core import HistogramMetricFamily

    buckets = [(f"{bound:g}", float(count)) for bound, count in zip(read.bounds, read.at_most, strict=True)]
    return HistogramMetricFamily(name, text, buckets=[*buckets, ("+Inf", float(read.count))], sum_value=read.total_s)
