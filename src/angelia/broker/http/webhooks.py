"""Webhooks: subscriptions whose events are pushed to a sink.

Each has a bounded queue at the broker and a task of its own: a sink that is slow, or gone, loses its own
oldest events and holds up nobody. Where the broker keeps a state they outlive its process; what was queued
does not.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import ssl
from collections.abc import Awaitable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any
from uuid import uuid4

import httpx
from msgspec.structs import replace

from angelia.broker.http.codec import binary_message, structured_message
from angelia.broker.http.problem import Problem
from angelia.broker.http.resource import Resource
from angelia.broker.http.service import Client, Subscription
from angelia.broker.http.settings import Outside, Settings
from angelia.broker.http.sinks import Answer, Permission, Sink, permitted
from angelia.broker.http.targets import ForbiddenTargetError, Targets
from angelia.broker.metrics import Metrics
from angelia.broker.state import KeptWebhook, State, Status
from angelia.errors import AngeliaError, BrokerError, ClosedError
from angelia.event import Event, format_timestamp
from angelia.types import TypeRegistry

__all__ = ["Webhook", "Webhooks"]

log = logging.getLogger("angelia.http")

_MESSAGES = {"binary": binary_message, "structured": structured_message}


class _Ended(Exception):  # noqa: N818 - the way out of a delivery
    """No more deliveries, and why."""


@dataclass
class Delivery:
    """How deliveries go: what `GET /subscriptions/{id}` tells."""

    status: Status = "pending"
    reason: str = ""
    rate: int | None = None
    delivered: int = 0
    retries: int = 0
    failed: int = 0
    last_status: int | None = None
    last_error: str = ""
    last_delivery: str | None = None
    next_attempt: str | None = None


class Webhook:
    """One subscription with its sink."""

    def __init__(
        self, name: str, resource: Resource, sink: Sink, hub: Webhooks, key: str | None = None
    ) -> None:
        self.name = name
        self.resource = resource
        self.sink = sink
        self.delivery = Delivery()
        self.key = key or secrets.token_urlsafe(24)
        self._hub = hub
        self._subscription: Subscription | None = None
        self._task: asyncio.Task[None] | None = None
        self._free_at = float("-inf")  # when the rate allows the next request

    @property
    def queued(self) -> int:
        """How many events wait for the sink."""
        return self._subscription.stats().queued if self._subscription is not None else 0

    def document(self) -> dict[str, Any]:
        """The subscription as the API shows it, with the state of its delivery."""
        dropped = self._subscription.dropped if self._subscription is not None else 0
        state = {**asdict(self.delivery), "queued": self.queued, "dropped": dropped}
        return {"id": self.name, **self.resource.document(), "delivery": state}

    def kept(self) -> KeptWebhook:
        """What a later process needs to go on with this one."""
        state = self.delivery
        given = self.resource.given
        return KeptWebhook(self.name, given, self.key, state.status, state.reason, state.rate)

    def subscribe(self, rate: int | None) -> None:
        """Gather what to deliver, at most `rate` requests a minute; `start` sends it."""
        self._subscription = self._hub.client.subscribe(
            self.resource.selection.filter, size=self._hub.settings.webhook_queue, policy="drop_oldest"
        )
        self._subscription.limit_bytes(self._hub.settings.webhook_queue_bytes)
        self.delivery.status, self.delivery.reason, self.delivery.rate = "active", "", rate

    def start(self) -> None:
        """Begin to deliver, if there is something to."""
        if self._subscription is not None:
            self._task = asyncio.create_task(self._run(self._subscription))

    async def stop(self) -> None:
        """End deliveries; what is queued is forgotten."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        if self._subscription is not None:
            await self._subscription.close()
        await self.sink.close()

    async def _run(self, subscription: Subscription) -> None:
        try:
            while True:
                event = await subscription.get()
                if self.resource.wants(event):
                    await self._deliver(event)
        except ClosedError:
            self._end("the broker is going down")
        except _Ended as end:
            self._end(str(end))
            await subscription.close()
            await self._hub.ended(self)
        except Exception:
            log.exception("the deliveries to %s failed", self.resource.target.url)
            self._end("the door failed; the broker's log tells why")
            await subscription.close()

    def _end(self, reason: str) -> None:
        self.delivery.status, self.delivery.reason = "ended", reason

    # ------------------------------------------------ one event

    async def _deliver(self, event: Event) -> None:
        headers, body = _MESSAGES[self.resource.mode](event, self._hub.origin)
        settings, state = self._hub.settings, self.delivery
        for attempt in range(settings.webhook_attempts):
            answer = await self._attempt(headers, body)
            if answer.is_delivered:
                state.delivered += 1
                state.last_delivery = self._timestamp(self._hub.outside.now())
                return
            if answer.status == 410:
                raise _Ended("the sink answered 410 Gone")
            if not answer.may_be_retried or attempt + 1 == settings.webhook_attempts:
                break
            await self._pause(attempt, answer)
            state.retries += 1
        state.failed += 1
        self._hub.metrics.count_drop("webhook")

    async def _attempt(self, headers: dict[str, str], body: bytes) -> Answer:
        outside, state = self._hub.outside, self.delivery
        if self.resource.expires is not None and outside.now() >= self.resource.expires:
            raise _Ended("the access token has expired; renew the subscription with PUT")
        if (wait := self._free_at - outside.now()) > 0:
            await outside.sleep(wait)
        self._free_at = outside.now() + (60 / state.rate if state.rate else 0)
        own = {"WebHook-Request-Origin": self._hub.settings.webhook_origin}
        answer = await self.sink.request(
            self.resource.method, {**self.resource.headers, **headers, **own}, body
        )
        state.last_status = answer.status
        state.last_error = "" if answer.is_delivered else answer.error
        return answer

    async def _pause(self, attempt: int, answer: Answer) -> None:
        """Wait before another attempt: as long as the sink said, or longer each time, with jitter."""
        settings, outside = self._hub.settings, self._hub.outside
        longest = min(settings.webhook_backoff * 2**attempt, settings.webhook_max_backoff)
        wait = longest * (0.5 + outside.jitter() / 2)
        if answer.retry_after is not None:
            wait = max(wait, answer.retry_after)
        self.delivery.next_attempt = self._timestamp(outside.now() + wait)
        await outside.sleep(wait)
        self.delivery.next_attempt = None

    def _timestamp(self, at: float) -> str:
        return format_timestamp(datetime.fromtimestamp(at, UTC))


class Webhooks:
    """All webhooks of the door."""

    def __init__(
        self,
        client: Client,
        settings: Settings,
        metrics: Metrics,
        origin: str,
        outside: Outside,
        state: State | None,
    ) -> None:
        self.client = client
        self.settings = settings
        self.metrics = metrics
        self.origin = origin
        self.outside = outside
        self._targets = Targets(settings.webhook_targets, outside.resolve)
        self._webhooks: dict[str, Webhook] = {}
        self._coming = 0
        self._state = state
        self._changing = asyncio.Lock()  # so that what is kept and what is here change together

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        return httpx.create_ssl_context()

    def __iter__(self) -> Iterator[Webhook]:
        return iter(self._webhooks.values())

    def queues(self) -> dict[str, float]:
        """How many events wait for each sink."""
        return {webhook.name: webhook.queued for webhook in self._webhooks.values()}

    def get(self, name: str) -> Webhook:
        """The webhook of that id, or a `Problem`."""
        try:
            return self._webhooks[name]
        except KeyError:
            raise Problem(404, "not-found", f"there is no subscription {name[:64]!r}") from None

    def restore(self, registry: TypeRegistry) -> None:
        """Go on with the subscriptions that were kept; their sinks are not asked again."""
        for kept in self._state.webhooks() if self._state is not None else ():
            try:
                resource = Resource(kept.document, registry)
            except (Problem, AngeliaError) as error:
                raise BrokerError(f"the webhook {kept.id} that was kept cannot go on: {error}") from None
            webhook = Webhook(kept.id, resource, self._sink(resource), self, kept.key)
            webhook.delivery.status, webhook.delivery.reason = kept.status, kept.reason
            self._webhooks[kept.id] = webhook
            if kept.status == "active":
                self._resume(webhook, kept.rate)

    def _resume(self, webhook: Webhook, rate: int | None) -> None:
        """Begin again; a type that was defined since may not have what the filter asks for."""
        try:
            webhook.subscribe(rate)
        except AngeliaError as error:
            webhook.delivery.status, webhook.delivery.reason = "ended", str(error)
            log.error("the webhook %s cannot go on: %s", webhook.name, error)
        webhook.start()

    async def create(self, resource: Resource) -> Webhook:
        """Subscribe, after the sink has allowed it."""
        if len(self._webhooks) + self._coming >= self.settings.max_subscriptions:
            detail = f"there are {self.settings.max_subscriptions} subscriptions already"
            raise Problem(503, "too-many-subscriptions", detail)
        self._coming += 1
        try:
            webhook, permission = await self._prepare(str(uuid4()), resource)
            await self._enter(webhook, permission, is_new=True)
        finally:
            self._coming -= 1
        return webhook

    async def replace(self, name: str, resource: Resource) -> Webhook:
        """Change a subscription; a new sink is asked, too."""
        self.get(name)
        webhook, permission = await self._prepare(name, resource)
        await self._enter(webhook, permission, is_new=False)
        return webhook

    async def remove(self, name: str) -> Webhook:
        """Unsubscribe."""
        async with self._changing:
            webhook = self.get(name)
            if self._state is not None:
                await self._written(self._state.forget_webhook(name))
            del self._webhooks[name]
        await webhook.stop()
        return webhook

    async def confirm(self, name: str, key: str, rate: str | None) -> Webhook:
        """A sink grants permission later, by the callback."""
        async with self._changing:
            webhook = self._webhooks.get(name)
            if webhook is None or not secrets.compare_digest(webhook.key.encode(), key.encode()):
                raise Problem(404, "not-found", "there is no such subscription, or the key is wrong")
            permission = permitted(rate, self.settings.webhook_rate)
            if not permission.is_granted:
                raise Problem(400, "invalid-parameter", permission.detail, attribute="WebHook-Allowed-Rate")
            if webhook.delivery.status == "pending":
                confirmed = replace(webhook.kept(), status="active", reason="", rate=permission.rate)
                await self._keep(confirmed)
                webhook.subscribe(permission.rate)
                webhook.start()
        return webhook

    async def ended(self, webhook: Webhook) -> None:
        """A subscription has come to its end by itself: not to begin anew with the next process."""
        async with self._changing:
            if self._webhooks.get(webhook.name) is webhook:
                try:
                    await self._keep(webhook.kept())
                except Problem as problem:
                    log.error("the end of the webhook %s is not kept: %s", webhook.name, problem)

    async def _keep(self, kept: KeptWebhook) -> None:
        if self._state is not None:
            await self._written(self._state.keep_webhook(kept))

    async def _written(self, change: Awaitable[None]) -> None:
        try:
            await change
        except BrokerError as error:
            log.error("%s", error)
            detail = "the broker cannot keep this; its log tells why"
            raise Problem(507, "not-kept", detail) from None

    def _sink(self, resource: Resource) -> Sink:
        return Sink(resource.target, self._targets, self.settings, self.outside, lambda: self._tls)

    async def _prepare(self, name: str, resource: Resource) -> tuple[Webhook, Permission]:
        try:
            await self._targets.address(resource.target)
        except ForbiddenTargetError as error:
            raise Problem(400, "forbidden-sink", f"sink: {error}", attribute="sink") from None
        sink = self._sink(resource)
        webhook = Webhook(name, resource, sink, self)
        permission = await sink.ask(self._callback(webhook))
        if not permission.is_granted and self.settings.public_url is None:
            await sink.close()
            detail = f"sink: it does not allow delivery: {permission.detail}"
            raise Problem(400, "sink-refused", detail, attribute="sink")
        return webhook, permission

    def _callback(self, webhook: Webhook) -> str | None:
        if self.settings.public_url is None:
            return None
        base = self.settings.public_url.rstrip("/")
        return f"{base}/subscriptions/{webhook.name}/confirmation?key={webhook.key}"

    async def _enter(self, webhook: Webhook, permission: Permission, *, is_new: bool) -> None:
        """Take a webhook up, in the place of the former one of its name, or leave all as it was."""
        async with self._changing:
            try:
                if not is_new:
                    self.get(webhook.name)  # it may have been removed meanwhile
                if permission.is_granted:
                    webhook.subscribe(permission.rate)
                else:
                    webhook.delivery.reason = f"waits for the sink's confirmation: {permission.detail}"
                await self._keep(webhook.kept())
            except BaseException:
                await webhook.stop()
                raise
            before = self._webhooks.get(webhook.name)
            self._webhooks[webhook.name] = webhook
        if before is not None:
            await before.stop()
        webhook.start()

    async def close(self) -> None:
        """End all deliveries."""
        await asyncio.gather(*[webhook.stop() for webhook in self._webhooks.values()])
        self._webhooks.clear()
