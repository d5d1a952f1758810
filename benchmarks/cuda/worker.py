"""Separate process for measurements on the device.

Runs one case after another. If it dies or loses the device, another process continues with the
next case.
"""

import multiprocessing
import time

GRACE = 45
"""Seconds that a measurement in progress may exceed the time limit."""


def serve(pipe):
    """Answer a request, a name and arguments, with records, then None."""
    from benchmarks.cuda import measure

    while request := pipe.recv():
        name, *arguments = request
        for record in getattr(measure, name)(*arguments):
            pipe.send(record)
        pipe.send(None)


class Worker:
    """Process with the device, started at the first request."""

    process = None

    def ask(self, until, *request):
        """Yield the records of an answer; the last one reports if the process ended before."""
        if self.process is None:
            context = multiprocessing.get_context("spawn")
            self.pipe, there = context.Pipe()
            self.process = context.Process(target=serve, args=(there,))
            self.process.start()
            there.close()
        try:
            self.pipe.send(request)
            while self.pipe.poll(max(0, until + GRACE - time.time())):
                record = self.pipe.recv()
                if record is None:
                    return
                yield record
            why = "it took too long and was stopped"
        except (EOFError, OSError):
            self.process.join(10)
            why = f"its process ended, status {self.process.exitcode}: is the device lost?"
        self.close()
        yield {"what": "failure", "who": " ".join(map(str, request[:2])), "why": why}

    def close(self):
        if self.process is not None:
            self.process.kill()
            self.process.join()
            self.process = None
