"""One scenario of SIENA 6.2: objects of interest and interested parties on a network of sites.

An object of interest executes m sequences of advertise, n times publish, unadvertise; an interested
party p sequences of subscribe, q times receive, unsubscribe (6.2.1.2). All are of one kind of event.

What the text leaves open is settled so: everybody begins at time 0; the delay before each
publication is exponential (a Poisson process), its mean drawn for each object from 2.0-2.5 s (the
paper's 2000-2500 units, taken for milliseconds); what follows in a sequence follows at once; a
party that has not received enough when publications end waits for ever.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import UTC, datetime

from angelia.event import Event
from angelia.filter import Advertisement, Filter
from angelia.messages import Advertise, Publish, Subscribe, Unadvertise, Unsubscribe
from angelia.sim.experiments.wide_area import ARCHITECTURES, Account, Sites, WideArea

__all__ = ["Outcome", "Scenario", "simulate"]

FILTER = Filter.parse('kind = "alarm"')
ADVERTISEMENT = Advertisement.parse('kind = "alarm"')
EVENT = Event({"kind": "alarm"}, id="the-one", time=datetime(2001, 8, 1, tzinfo=UTC))


@dataclass(frozen=True)
class Scenario:
    """The parameters of 6.2.1.2 and 6.2.2; `t` is the range of the mean delay between publications."""

    objects: int
    parties: int
    m: int = 10
    n: int = 10
    p: int = 10
    q: int = 10
    t: tuple[float, float] = (2.0, 2.5)


@dataclass
class Outcome:
    """What a run has cost, what was asked for and what was received."""

    account: Account = field(default_factory=lambda: Account(0))
    advertised: int = 0
    published: int = 0
    unadvertised: int = 0
    subscribed: int = 0
    unsubscribed: int = 0
    received: int = 0

    @property
    def requests(self) -> int:
        """How many service requests clients made (6.2.2.2)."""
        return self.advertised + self.published + self.unadvertised + self.subscribed + self.unsubscribed


class _Object:
    """An object of interest."""

    def __init__(self, run: _Run, identity: str, site: int) -> None:
        self.run, self.identity, self.site = run, identity, site
        self.mean = run.rng.uniform(*run.scenario.t)
        self.sequences, self.publications = run.scenario.m, 0

    def advertise(self, now: float) -> None:
        self.run.outcome.advertised += 1
        self.run.network.request(self.site, Advertise(self.identity, ADVERTISEMENT))
        self.publications = self.run.scenario.n
        self._wait(now)

    def _wait(self, now: float) -> None:
        self.run.network.at(now + self.run.rng.expovariate(1 / self.mean), self._publish)

    def _publish(self, now: float) -> None:
        self.run.outcome.published += 1
        self.run.network.request(self.site, Publish(self.identity, EVENT))
        self.publications -= 1
        if self.publications:
            self._wait(now)
        else:
            self._unadvertise(now)

    def _unadvertise(self, now: float) -> None:
        self.run.outcome.unadvertised += 1
        self.run.network.request(self.site, Unadvertise(self.identity, ADVERTISEMENT))
        self.sequences -= 1
        if self.sequences:
            self.advertise(now)


class _Party:
    """An interested party."""

    def __init__(self, run: _Run, identity: str, site: int) -> None:
        self.run, self.identity, self.site = run, identity, site
        self.sequences, self.missing = run.scenario.p, 0

    def subscribe(self, now: float) -> None:
        self.run.outcome.subscribed += 1
        self.missing = self.run.scenario.q
        self.run.network.request(self.site, Subscribe(self.identity, FILTER))

    def receive(self, now: float) -> None:
        if not self.missing:
            return  # it has terminated; this was on its way
        self.run.outcome.received += 1
        self.missing -= 1
        if not self.missing:
            self._unsubscribe(now)

    def _unsubscribe(self, now: float) -> None:
        self.run.outcome.unsubscribed += 1
        self.run.network.request(self.site, Unsubscribe(self.identity, FILTER))
        self.sequences -= 1
        if self.sequences:
            self.subscribe(now)


class _Run:
    """A scenario on an architecture."""

    def __init__(self, architecture: str, scenario: Scenario, sites: Sites, places: str, times: str) -> None:
        self.scenario, self.rng = scenario, random.Random(times)
        self.network = WideArea(ARCHITECTURES[architecture], sites, self._received)
        self.outcome = Outcome()
        where = random.Random(places)
        number = self.network.number
        self.objects = [_Object(self, f"o{i}", where.randrange(number)) for i in range(scenario.objects)]
        self.parties = {
            f"p{i}": _Party(self, f"p{i}", where.randrange(number)) for i in range(scenario.parties)
        }

    def _received(self, identities: list[str], now: float) -> None:
        for identity in identities:
            self.parties[identity].receive(now)


def simulate(
    architecture: str, scenario: Scenario, sites: Sites, places: str, times: str | None = None
) -> Outcome:
    """Run a scenario; the seeds `places` and `times` (as places, if not told) place and time everybody.

    The same seeds do so alike in every architecture.
    """
    run = _Run(architecture, scenario, sites, places, places if times is None else times)
    start = run.network.now
    for party in run.parties.values():
        run.network.at(start, party.subscribe)
    for thing in run.objects:
        run.network.at(start, thing.advertise)
    run.outcome.account = run.network.run()
    return run.outcome
