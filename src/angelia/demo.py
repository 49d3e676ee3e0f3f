"""`make demo`: what there is, shown and checked."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.tree import Tree

from angelia.event import Event
from angelia.filter import Filter, Poset, attr, subscription_poset
from angelia.types import TypeRegistry, event_type, to_event

__all__ = ["run"]

EVENT = Event(
    {"airline": "UA", "dest": "DEN", "price": 420, "tags": ["direct", "refundable"]},
    type="flights.Quote",
    source="feeds/united",
)
FILTERS = {
    'airline = "UA" and price < 500': True,
    'airline in ("AA", "DL") or price between 400 and 450': True,
    'flights.Quote: tags = "direct" and dest prefix "D"': True,
    'price < "500"': False,
    'not tags = "refundable"': False,
    'dest matches "^(DEN|SFO)$" and @source suffix "united"': True,
}
SUBSCRIPTIONS = (
    'airline = "UA" and dest = "DEN"',
    'airline = "UA"',
    "exists airline",
    'airline = "AZ" and price < 800',
    "price < 500",
    'airline = "UA" and price < 300',
)


@event_type("flights.Fare")
class Fare:
    """What a seat costs."""

    price: float


@event_type("flights.Sale")
class Sale(Fare):
    """A fare for a while."""

    percent: int


def run() -> bool:
    """Show it all; whether everything came out as it should."""
    console = Console(highlight=False)
    parts = (_matching(console), _covering(console), _poset(console), _types(console))
    console.print("\nNext: [bold]make test[/bold], docs/filters.md, and `angelia filter check 'price < 500'`")
    return all(parts)


def _matching(console: Console) -> bool:
    console.print("[bold]One event, and the filters it matches[/bold]")
    console.print(f"  {escape(str(dict(EVENT.attributes)))}\n")
    right = True
    for text, expected in FILTERS.items():
        matched = Filter.parse(text).matches(EVENT)
        right = right and matched is expected
        console.print(f"  {'[green]✓[/green]' if matched else '[red]✗[/red]'} {escape(text)}")
    console.print("\n[bold]Why not?[/bold]")
    console.print(escape(str(Filter.parse('airline = "UA" and price < 400 and exists seat').explain(EVENT))))
    return right


def _covering(console: Console) -> bool:
    wide, narrow = attr("price") < 500, (attr("price") < 300) & (attr("airline") == "UA")
    console.print("\n[bold]Covering: who gets all of one gets all of the other[/bold]")
    console.print(f"  {escape(str(wide))}  covers  {escape(str(narrow))}")
    return wide.covers(narrow) and not narrow.covers(wide)


def _poset(console: Console) -> bool:
    poset = subscription_poset()
    for text in SUBSCRIPTIONS:
        poset.insert(Filter.parse(text))
    console.print("\n[bold]A poset of subscriptions: only its roots go to the next broker[/bold]")
    tree = Tree(f"{len(poset)} subscriptions, {len(poset.roots)} roots")
    for root in poset.roots:
        _grow(tree.add(f"[bold]{escape(str(root))}[/bold]"), poset, root)
    console.print(tree)
    return set(map(str, poset.roots)) == {"exists airline", "price < 500"}


def _grow(branch: Tree, poset: Poset[Filter], item: Filter) -> None:
    for lower in sorted(poset.predecessors(item), key=str):
        _grow(branch.add(escape(str(lower))), poset, lower)


def _types(console: Console) -> bool:
    registry = TypeRegistry()
    registry.add_class(Sale)
    event = to_event(Sale(price=99.0, percent=30))
    fares = Filter.parse("flights.Fare: price < 100")
    console.print("\n[bold]Types with inheritance: a Sale is a Fare[/bold]")
    console.print(f"  {escape(str(fares))}  matches  {escape(repr(event))}")
    return fares.matches(event, registry) and not fares.matches(event)
