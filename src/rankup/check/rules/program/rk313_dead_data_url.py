"""Data from an address that does not answer."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.facts.program.program import Program
from rankup.check.rule import Match, Rule
from rankup.check.rules.queries import match
from rankup.findings.finding import Confidence, Severity

_DEAD = ("yann.lecun.com/exdb/mnist",)


def find(program: Program) -> Iterator[Match]:
    for module in program.modules:
        for node in module.addresses:
            for dead in _DEAD:
                if dead in str(node.value) and "\n" not in str(node.value):
                    yield match(module, node, f"{dead} does not give the files any more.")


RULE = Rule(
    code="RK313",
    name="dead-data-url",
    severity=Severity.WARNING,
    confidence=Confidence.LIKELY,
    what="Data are fetched from an address that is known to refuse or to be gone.",
    why="The server yann.lecun.com answers 403 or 404 for MNIST since 2021; torchvision uses mirrors.",
    fix="Use torchvision.datasets.MNIST, or https://ossci-datasets.s3.amazonaws.com/mnist/.",
    find=find,
    fires=(
        """URL = "http://yann.lecun.com/exdb/mnist/train-images-idx3-ubyte.gz"
""",
        """import urllib.request

def fetch(name):
    urllib.request.urlretrieve("https://yann.lecun.com/exdb/mnist/" + name, name)
""",
    ),
    silent=(
        """URL = "https://ossci-datasets.s3.amazonaws.com/mnist/train-images-idx3-ubyte.gz"
""",
        '''def f():
    """MNIST, see http://yann.lecun.com/exdb/mnist/
    for the paper.
    """
''',
    ),
)
