"""The time of a server, which a test moves: deadlines of its clients pass when the test says so, and never before."""

import asyncio

from streaming_app.web.server import HttpServer
from tests.support.waiting import MINUTES, wait_until

_TURNS = 5  # of the event loop: a timer, what it calls, the end of a connection


class ServerClock:
    """Stops the time of a server that has been started; `resume` before it is closed."""

    def __init__(self, server: HttpServer) -> None:
        assert wait_until(lambda: server._server.started)
        loop = server._server.servers[0].get_loop()
        self._loop = loop
        self._now = loop.time()
        self.resume = lambda: loop.__dict__.pop("time", None)
        self._loop.time = lambda: self._now  # type: ignore[method-assign]

    def tick(self, seconds: float) -> None:
        """Let time pass, and return once the server has done what was due."""

        async def move() -> None:
            self._now += seconds
            for _ in range(_TURNS):
                await asyncio.sleep(0)

        asyncio.run_coroutine_threadsafe(move(), self._loop).result(MINUTES)
