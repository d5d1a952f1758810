"""Layers in a module of Lightning, in float32 and with precision="bf16-mixed"."""

import pytest

torch = pytest.importorskip("torch")
lightning = pytest.importorskip("lightning")

from pyops.torch import nn  # noqa: E402


class Module(lightning.LightningModule):
    """Graph attention that learns features of nodes from those of their neighbours."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.attend = nn.GATConv(6, 8, 2, bias=False)
        self.mix = nn.SAGEConv(16, 6)
        self.seen, self.losses = set(), []

    def training_step(self, batch, _):
        x, edge_index, wanted = (part[0] for part in batch)
        hidden = self.attend(x, edge_index)
        self.seen.add(hidden.dtype)
        loss = (self.mix(hidden.relu(), edge_index).float() - wanted).square().mean()
        self.losses.append(float(loss.detach()))
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 1e-2)


@pytest.mark.parametrize(
    ("precision", "kind"), [("32-true", torch.float32), ("bf16-mixed", torch.bfloat16)]
)
def test_training(tmp_path, precision, kind):
    """Layers run in the type of the precision, parameters stay float32, and the loss falls."""
    torch.manual_seed(1)
    x, edge_index = torch.randn(1, 40, 6), torch.randint(40, (1, 2, 200))
    wanted = torch.zeros(1, 40, 6).index_add(1, edge_index[0, 1], 0.3 * x[:, edge_index[0, 0]])
    data = torch.utils.data.TensorDataset(x, edge_index, wanted)
    trainer = lightning.Trainer(
        accelerator="cpu",
        precision=precision,
        max_epochs=8,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
    )
    module = Module()
    trainer.fit(module, torch.utils.data.DataLoader(data))
    assert module.seen == {kind}
    assert {p.dtype for p in module.parameters()} == {torch.float32}
    assert module.losses[-1] < module.losses[0]
