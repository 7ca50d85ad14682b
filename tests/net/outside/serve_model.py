"""`python serve_model.py MODEL LIMIT CONTEXT`: llama.cpp's own server for a model, its address as the first line of output."""

from __future__ import annotations

import importlib
import sys
import time
from typing import Any


def main(model: str, limit: int, context: int) -> None:
    """Serve until killed; answers for which nobody gives a limit have at most `limit` tokens."""
    xllamacpp: Any = importlib.import_module("xllamacpp")
    parameters: Any = xllamacpp.CommonParams()
    parameters.model.path = model
    parameters.n_predict, parameters.n_ctx, parameters.n_parallel = limit, context, 2
    parameters.cpuparams.n_threads = 1
    parameters.use_jinja, parameters.warmup, parameters.port = True, False, 0
    server = xllamacpp.Server(parameters)
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    while True:
        time.sleep(3600)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
