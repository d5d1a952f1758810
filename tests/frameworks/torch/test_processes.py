"""Front end for PyTorch in workers of a DataLoader and in distributed training."""

import os
import socket

import pytest

torch = pytest.importorskip("torch")

import pyops.torch as pt  # noqa: E402


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, number):
        return pt.tanh(torch.full((4,), number / 8))


def test_workers_of_a_data_loader():
    pt.tanh(torch.zeros(1000, 1000))  # starts threads before the fork
    batches = list(torch.utils.data.DataLoader(Rows(), batch_size=4, num_workers=2, timeout=60))
    expected = torch.tanh(torch.arange(8) / 8)[:, None].expand(8, 4)
    torch.testing.assert_close(torch.cat(batches), expected)


class Convolution(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.graph = pt.Graph([0, 1, 2, 2], [1, 2, 0, 1])
        torch.manual_seed(0)
        self.params = torch.nn.Parameter(torch.randn(5 * 3 + 6 * 4 * 3, dtype=torch.float64))

    def forward(self, features, coords):
        return pt.gno_conv(self.graph, features, coords, self.params, hidden=5, activation="tanh")


def inputs(rank):
    torch.manual_seed(1 + rank)
    return torch.randn(3, 4, dtype=torch.float64), torch.randn(4, 2, dtype=torch.float64)


def train(rank, port, results):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.distributed.init_process_group("gloo", rank=rank, world_size=2)
    model = torch.nn.parallel.DistributedDataParallel(Convolution())
    model(*inputs(rank)).square().sum().backward()
    results[rank] = model.module.params.grad.tolist()
    torch.distributed.destroy_process_group()


def test_distributed_data_parallel():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with torch.multiprocessing.Manager() as manager:
        results = manager.dict()
        torch.multiprocessing.spawn(train, (port, results), nprocs=2)
        found = [torch.tensor(results[rank], dtype=torch.float64) for rank in range(2)]
    model = Convolution()
    for rank in range(2):
        (0.5 * model(*inputs(rank)).square().sum()).backward()
    for gradient in found:
        torch.testing.assert_close(gradient, model.params.grad)
