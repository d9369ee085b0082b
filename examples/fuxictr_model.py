"""FuxiCTR: its models create their optimizer in the constructor, so replace it after `compress`."""

import tempfile
from collections import OrderedDict

import torch
from fuxictr.features import FeatureMap
from fuxictr.pytorch.layers import FeatureEmbedding, MLP_Block
from fuxictr.pytorch.models import BaseModel

import cce


class WideAndDeep(BaseModel):
    """As FuxiCTR's own models are: tables, a network, and `compile` at the end of the constructor."""

    def __init__(self, feature_map, **options):
        super().__init__(feature_map, **options)
        self.embedding_layer = FeatureEmbedding(feature_map, 16)
        self.network = MLP_Block(input_dim=2 * 16, hidden_units=[16], output_dim=1, output_activation="sigmoid")
        self.compile("adam", "binary_crossentropy", 0.01)
        self.model_to_device()

    def forward(self, inputs):
        return {"y_pred": self.network(self.embedding_layer(self.get_inputs(inputs)).flatten(1))}


def make_feature_map(folder):
    """Two features and a label, as a data set of FuxiCTR's would have them."""
    feature_map = FeatureMap("clicks", folder)
    feature_map.default_emb_dim = 16
    feature_map.labels = ["click"]
    feature_map.num_fields = feature_map.total_features = 2
    feature_map.features = OrderedDict(
        (name, {"source": "", "type": "categorical", "vocab_size": 20_000, "padding_idx": 0})
        for name in ("user", "item")
    )
    feature_map.set_column_index()
    return feature_map


def main() -> None:
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        options = {"model_root": folder, "metrics": ["AUC"], "verbose": 0}
        model = WideAndDeep(make_feature_map(folder), model_id="wide_and_deep", **options)
        plan = cce.compress(model, seed=0)
        print(f"{len(plan.compressed)} tables compressed")
        model.optimizer = cce.optim.Adam(model, lr=0.01)  # the first one holds the old tables
        ids = torch.randint(1, 20_000, (2_000, 2))
        rows = torch.cat([ids, (ids[:, :1] % 3 == 0).long()], dim=1).double()
        model._max_gradient_norm = 10  # what `fit` sets
        losses = []
        for batch in rows.repeat(5, 1).split(100):
            named = {"user": batch[:, 0], "item": batch[:, 1], "click": batch[:, 2]}
            losses.append(model.train_step(named).item())
        print(f"loss {sum(losses[:10]) / 10:.3f} -> {sum(losses[-10:]) / 10:.3f}")
        print(cce.finalize(model, seed=0))


if __name__ == "__main__":
    main()
