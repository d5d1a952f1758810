"""A process of its own for what uses the device.

It serves case after case. Where it dies, or the device is lost in it, another one goes on with the
next case.
"""

import multiprocessing
import time

GRACE = 45
"""Seconds that what has begun may take beyond the time."""


def serve(pipe):
    """Answer a request, a name and arguments, with records and None after them."""
    from benchmarks.cuda import measure

    while request := pipe.recv():
        name, *arguments = request
        for record in getattr(measure, name)(*arguments):
            pipe.send(record)
        pipe.send(None)


class Worker:
    """A process with the device, started when first asked."""

    process = None

    def ask(self, until, *request):
        """The records of an answer; the last says so where the process ends before its answer."""
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
