"""A run of cce whose process is killed when all its tables are clustered and one has taken its compact form."""

import os
import signal
from pathlib import Path

from cce.embeddings import CCEEmbedding
from cce.training import Trainer
from helpers.runs import CCE, NETWORK, tiny_config


def main(data: str, out: str) -> None:
    """Train until then."""
    become = CCEEmbedding.become

    def dying(self, compact):
        become(self, compact)
        os.kill(os.getpid(), signal.SIGKILL)

    CCEEmbedding.become = dying
    options = {**CCE, "refits": 2, "model_options": NETWORK, "epochs": 1}
    Trainer(tiny_config(Path(data), **options), out).run()
