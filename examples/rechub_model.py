"""torch-rechub: its trainers make their optimizer themselves, so compress first and give them one of ours."""

import torch
from torch_rechub.basic.features import DenseFeature, SparseFeature
from torch_rechub.models.ranking import WideDeep
from torch_rechub.trainers import CTRTrainer

import cce


class Clicks(torch.utils.data.Dataset):
    """Clicks of users on items: features by name, and a label."""

    def __init__(self) -> None:
        g = torch.Generator().manual_seed(0)
        self.users, self.items = (torch.randint(8_000, (3_000,), generator=g) for _ in range(2))

    def __len__(self) -> int:
        return len(self.users)

    def __getitem__(self, row):
        user, item = self.users[row], self.items[row]
        return {"user": user, "item": item, "age": torch.tensor(0.5)}, (user % 3 == 0).float()


def main() -> None:
    torch.manual_seed(0)
    sparse = [SparseFeature(name, vocab_size=8_000, embed_dim=16) for name in ("user", "item")]
    network = {"dims": [16], "dropout": 0, "activation": "relu"}
    model = WideDeep(sparse, [*sparse, DenseFeature("age")], mlp_params=network)
    plan = cce.compress(model, seed=0)
    print(f"{len(plan.compressed)} tables compressed")
    trainer = CTRTrainer(model, optimizer_fn=cce.optim.Adam, optimizer_params={"lr": 0.01}, n_epoch=2, device="cpu")
    trainer.fit(torch.utils.data.DataLoader(Clicks(), batch_size=100))
    print(cce.finalize(model, seed=0))


if __name__ == "__main__":
    main()
