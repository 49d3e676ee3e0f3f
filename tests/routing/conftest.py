import pytest
from tests.routing.network import Network


@pytest.fixture
def network():
    """Makes networks; when the test ends, the invariants of each are checked."""
    made = []

    def make(*args, **options):
        made.append(Network(*args, **options))
        return made[-1]

    yield make
    for each in made:
        each.check()
