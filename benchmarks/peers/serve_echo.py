"""Bare Ray Serve with one hop: the same FastAPI app in a replica, HAProxy in front.

The environment is the one Headpond uses (`headpond.ray_env`): the best we know for Serve.
"""

import sys
import time

from headpond.ray_env import apply_ray_env

apply_ray_env()

import ray  # noqa: E402
from fastapi_echo import app  # noqa: E402
from ray import serve  # noqa: E402

if __name__ == "__main__":
    ray.init(include_dashboard=False, log_to_driver=False, _node_ip_address="127.0.0.1")
    serve.start(http_options={"host": "127.0.0.1", "port": int(sys.argv[1])})
    echo = serve.deployment(serve.ingress(app)(type("Echo", (), {})))
    serve.run(echo.options(max_ongoing_requests=1000).bind(), route_prefix="/")
    while True:
        time.sleep(1)
