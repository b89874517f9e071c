"""A bundle's graph -> NVIDIA Triton serving it on loopback, until stopped.

Runs under `.venv-triton` (see setup.sh), without anything of specrag:
    .venv-triton/bin/python tests/triton_server/serve.py GRAPH NAME HTTP_PORT GRPC_PORT METRICS_PORT
"""

import sys

import numpy as np
import onnxruntime
from pytriton.decorators import batch
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig


def main(graph: str, name: str, http: str, grpc: str, metrics: str) -> None:
    """Serve `graph` until SIGINT or SIGTERM."""
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    inputs = [node.name for node in session.get_inputs()]
    outputs = [node.name for node in session.get_outputs()]

    @batch
    def infer(**feeds: np.ndarray) -> dict[str, np.ndarray]:
        return dict(zip(outputs, session.run(outputs, feeds), strict=True))

    config = TritonConfig(
        http_address="127.0.0.1",
        http_port=int(http),
        grpc_address="127.0.0.1",
        grpc_port=int(grpc),
        metrics_port=int(metrics),
        log_verbose=0,
    )
    with Triton(config=config) as triton:
        triton.bind(
            model_name=name,
            infer_func=infer,
            inputs=[Tensor(name=name, dtype=np.int64, shape=(-1,)) for name in inputs],
            outputs=[Tensor(name=name, dtype=np.float32, shape=(-1,)) for name in outputs],
            config=ModelConfig(max_batch_size=64),
        )
        triton.serve()


if __name__ == "__main__":
    main(*sys.argv[1:])
