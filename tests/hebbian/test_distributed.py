"""Two processes with half of the batch each write the gradients of one process with all of it."""

import os
import socket
from pathlib import Path

import pytest
import torch
import torch.multiprocessing as mp
from torch import distributed as dist
from torch.nn.parallel import DistributedDataParallel

from hebbseg import HebbianPCA, Plasticity, SoftWTA, UNet

RULES = {"swta": SoftWTA(temperature=0.1), "hpca": HebbianPCA()}
CASES = [(rule, options) for rule in RULES for options in ({}, {"whiten": 1.0})]
SIZE = {"features": (4, 6), "dropout": 0.0, "norm": "none", "seed": 0}


def images() -> torch.Tensor:
    return torch.randn(4, 3, 12, 12, generator=torch.Generator().manual_seed(0))


def gradients(net: torch.nn.Module, x: torch.Tensor, rule: str, options: dict) -> dict[str, torch.Tensor]:
    with Plasticity(net, RULES[rule], **options) as plasticity, torch.no_grad():
        net(x)
        plasticity.write_gradients()
    return {name: p.grad for name, p in net.named_parameters() if p.grad is not None}


def worker(rank: int, port: int, folder: str) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    for case, (rule, options) in enumerate(CASES):
        net = DistributedDataParallel(UNet(**SIZE).double())
        found = gradients(net, images().double()[2 * rank : 2 * rank + 2], rule, options)
        torch.save({name.removeprefix("module."): g for name, g in found.items()}, Path(folder) / f"{case}-{rank}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    answer = tmp_path_factory.mktemp("gradients")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(worker, (port, str(answer)), nprocs=2)
    return answer


@pytest.mark.parametrize("case", range(len(CASES)))
def test_two_processes_equal_one_on_the_joint_batch(case: int, folder: Path) -> None:
    joint = gradients(UNet(**SIZE).double(), images().double(), *CASES[case])
    for rank in range(2):
        found = torch.load(folder / f"{case}-{rank}.pt", weights_only=True)
        assert found.keys() == joint.keys()
        for name, gradient in joint.items():
            torch.testing.assert_close(found[name], gradient, rtol=1e-10, atol=1e-12)
