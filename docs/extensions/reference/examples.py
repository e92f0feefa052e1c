"""Examples of the Python interface, which a test runs in one session after `SETUP`: the reference shows each below its
name."""

from __future__ import annotations

SETUP = """\
import cutaway, numpy as np, torch
X = np.random.default_rng(0).normal(size=(90, 4))
y = np.where(X[:, 0] + X[:, 1] > 0, "yes", "no")
rows = [{"a": float(a), "b": float(b), "y": str(c)} for (a, b, *_), c in zip(X, y)]
with open("xy.csv", "w") as file:
    file.write("a,b,y\\n" + "".join(f"{row['a']},{row['b']},{row['y']}\\n" for row in rows))
run = cutaway.train("mlp", "xy.csv", target="y", epochs=2, out="runs/xy")
model = cutaway.create_model("lenet5-modern").eval()
images = torch.rand(6, 1, 32, 32)
"""

EXAMPLES = {
    "cutaway.train": (
        'fitted = cutaway.train("mlp", (X, y), epochs=2)\n'
        "[sorted(row) for row in fitted.predict(X[:1])]  "
        "# [['input', 'probability', 'probability no', 'probability yes', 'target']]"
    ),
    "cutaway.load": 'run = cutaway.load("runs/xy")\nrun.about["model"], run.spec.shape  # (\'mlp\', (2,))',
    "cutaway.check": (
        'found = cutaway.check("mlp", (X, y))\n'
        "found.findings  # []\nfound.splits  # {'train': 63, 'val': 14, 'test': 13}"
    ),
    "cutaway.plan": (
        'found = cutaway.plan("mlp", "digits", gpu="h100", gpus=2, price=2.5)\n'
        "[strategy.name for strategy in found.strategies]  # ['one', 'ddp', 'fsdp']\n"
        'found["ddp"].fits  # True'
    ),
    "cutaway.search": (
        'found = cutaway.search("mlp", (X, y), space={"lr": "1e-3..1e-1:log"}, trials=2, epochs=1)\n'
        "len(found.trials)  # 2\n"
        'found.best["lr"], found.best["accuracy"]  # of the best trial, on the validation split'
    ),
    "cutaway.compare": (
        'found = cutaway.compare(["mlp", "logistic"], (X, y), seeds=2, trials=0, epochs=1)\n'
        'found.best["name"], found.best["value"]  # the best model, which may be a baseline, and its score\n'
        'found.difference("mlp", "logistic")["told_apart"]  # whether the difference is significant'
    ),
    "cutaway.prepare": (
        'from pathlib import Path\nPath("corpus.txt").write_text("to be or not to be, that is the question. " * 500)\n'
        'manifest = cutaway.prepare("corpus.txt", "shards", tokenizer="characters")\n'
        'manifest.count("train")  # 14700'
    ),
    "cutaway.prune": (
        'small = cutaway.prune("runs/xy", "runs/pruned", sparsity=0.5, epochs=1)\n'
        "weights = torch.cat([w.flatten() for w in small.model.parameters() if w.ndim == 2])\n"
        "round((weights == 0).float().mean().item(), 2)  # 0.5"
    ),
    "cutaway.quantize": (
        'small = cutaway.quantize("runs/xy", "runs/int8")\n'
        'small.evaluate()["accuracy"].value - run.evaluate()["accuracy"].value  # the change of the accuracy'
    ),
    "cutaway.export": 'path = cutaway.export("runs/xy", "xy.pt2")\npath.suffix  # \'.pt2\'',
    "cutaway.look": (
        'page = cutaway.look(run, view="network")\n'
        "[view[\"id\"] for view in page.views]  # ['network']\n"
        'page.save("network.html")'
    ),
    "cutaway.describe": (
        "description = cutaway.describe(model, images[:1])\n"
        "description.parameters, description.multiply_adds  # (61706, 416520)"
    ),
    "cutaway.card": (
        'card = cutaway.card("lenet5")\n'
        "card.card.title  # 'Gradient-based learning applied to document recognition'\n"
        "card.published_parameters  # 60000"
    ),
    "cutaway.create_model": (
        'other = cutaway.create_model("lenet5-modern", num_classes=3)\nother(images).shape  # (6, 3)'
    ),
    "cutaway.list_models": ("cutaway.list_models(takes=\"graph\")[:3]  # ['gae', 'gat', 'gcn']"),
    "cutaway.CutawayError": (
        'try:\n    cutaway.train("mlp", (X, y), lr=-1)\nexcept cutaway.CutawayError as error:\n'
        "    print(error.code, error)  # CUT-101 Invalid lr=-1: must be 0 to 1e+30."
    ),
    "cutaway.CutawayWarning": 'import warnings\nwarnings.simplefilter("ignore", cutaway.CutawayWarning)',
    "cutaway.AnyName": (
        'import os\nname = cutaway.AnyName(os.environ.get("MODEL", "mlp"))\n'
        "fitted = cutaway.train(name, (X, y), epochs=1)  # a type checker accepts the name"
    ),
    "cutaway.Callback": (
        "class StopEarly(cutaway.Callback):\n    def on_epoch_end(self, state):\n"
        '        if state.epoch == 2:\n            state.stopped = "two epochs are enough"\n\n'
        'fitted = cutaway.train("mlp", (X, y), epochs=9, callbacks=[StopEarly()])\n'
        'fitted.about["epochs_done"]  # 2'
    ),
    "cutaway.Run": (
        'run = cutaway.load("runs/xy")\n'
        "run.history.columns[:5]  # ['epoch', 'step', 'lr', 'train_loss', 'val_loss']\n"
        "type(run.model).__name__, run.task.name  # ('MLP', 'classification')"
    ),
    "cutaway.Run.evaluate": (
        'accuracy = run.evaluate()["accuracy"]\naccuracy.low <= accuracy.value <= accuracy.high  # True'
    ),
    "cutaway.Run.predict": (
        'rows = run.predict([{"a": 0.5, "b": 0.1}])\n'
        "list(rows[0])  # ['input', 'y', 'probability', 'probability no', 'probability yes']"
    ),
    "cutaway.Run.data": 'len(run.data().splits["train"])  # 63',
    "cutaway.Run.set_data": (
        'fitted = cutaway.load(cutaway.train("mlp", (X, y), epochs=1).folder)\n'
        "list(fitted.set_data((X, y)).data().splits)  # ['train', 'val', 'test']"
    ),
    "cutaway.Run.results": (
        'outputs, targets = run.results(run.data().splits["test"])[:2]\n'
        "tuple(outputs.shape), tuple(targets.shape)  # ((13, 2), (13,))"
    ),
    "cutaway.Vectors": (
        'words = ["cat", "cats", "dog", "dogs"]\n'
        "matrix = np.array([[1, 0, 0], [1, 0, 1], [0, 1, 0], [0, 1, 1]], np.float32)\n"
        "vectors = cutaway.Vectors(words, matrix)\n"
        'len(vectors), vectors["cats"].tolist()  # (4, [1.0, 0.0, 1.0])'
    ),
    "cutaway.Vectors.similarity": 'round(vectors.similarity("cat", "cats"), 2)  # 0.71',
    "cutaway.Vectors.neighbours": ("[word for word, similarity in vectors.neighbours(\"cat\", 1)]  # ['cats']"),
    "cutaway.Vectors.analogy": ('[word for word, similarity in vectors.analogy("cat", "cats", "dog")]  # [\'dogs\']'),
    "cutaway.Vectors.rows": "list(vectors.rows([\"cat\"])[0])  # ['input', 'nearest']",
    "cutaway.Vectors.save": 'vectors.save("words.txt")',
    "cutaway.Vectors.load": 'cutaway.Vectors.load("words.txt")["cat"].shape  # (3,)',
    "cutaway.Vectors.from_embedding": (
        'cutaway.Vectors.from_embedding(torch.nn.Embedding(4, 8), ["[PAD]", "[UNK]", "a", "b"]).words  # [\'a\', \'b\']'
    ),
    "cutaway.estimators.Classifier": (
        "from cutaway.estimators import Classifier\n"
        'classifier = Classifier("mlp", epochs=2).fit(X, y)\n'
        "list(classifier.classes_), classifier.predict_proba(X[:3]).shape  # (['no', 'yes'], (3, 2))"
    ),
    "cutaway.estimators.Regressor": (
        "from cutaway.estimators import Regressor\n"
        'regressor = Regressor("mlp", epochs=2).fit(X, X[:, 0])\nregressor.predict(X[:3]).shape  # (3,)'
    ),
    "cutaway.inspect.capture": (
        'with cutaway.inspect.capture(model, "features", "c*") as seen:\n    model(images)\n'
        'list(seen["features"]), tuple(seen["features"]["c1"].shape)  '
        "# (['c1', 'c3', 'c5'], (6, 6, 28, 28))"
    ),
    "cutaway.inspect.ablate": (
        'effects = cutaway.inspect.ablate(model, images, "c1", by="channel")\n'
        "len(effects)  # 6\n"
        "effects[0].part, effects[0].change  # the channel whose ablation changes the outputs most"
    ),
    "cutaway.inspect.patch": (
        'restored = cutaway.inspect.patch(model, images, images.flip(0), ["c1", "f6"], lambda y: y[0, 0])\n'
        "[round(part.share, 2) for part in restored]  # [1.0, 1.0]"
    ),
    "cutaway.inspect.attribute": (
        'found = cutaway.inspect.attribute(model, images[:1], method="integrated_gradients", target=2)\n'
        "tuple(found.values.shape)  # (1, 32, 32)\n"
        "found.passed, found.says  # whether the checks passed, and their result as text"
    ),
    "cutaway.inspect.concept": (
        "bright, pool = torch.rand(12, 1, 32, 32) + 1, torch.rand(24, 1, 32, 32)\n"
        'found = cutaway.inspect.concept(model, images, bright, pool, layer="f6", sets=3)\n'
        "0 <= found.score <= 1, found.layer  # (True, 'f6')"
    ),
    "cutaway.inspect.flow": (
        "from torch.nn import functional as F\n"
        "layers = cutaway.inspect.flow(model, images, lambda y: F.cross_entropy(y, torch.zeros(6, dtype=torch.long)))\n"
        "[layer.name for layer in layers]  # ['c1', 'c3', 'c5', 'f6', 'head']\n"
        "layers[0].gradient, layers[0].ratio  # root mean square of the gradient; update relative to the weights"
    ),
    "cutaway.inspect.intervene": (
        "from cutaway.inspect import Zero, intervene\n"
        'before = model(images)\nwith intervene(model, Zero("c1", channel=0)):\n    without = model(images)\n'
        "torch.equal(without, before), torch.equal(model(images), before)  # (False, True)"
    ),
    "cutaway.inspect.Zero": (
        'with intervene(model, Zero("f6")):\n    changed = model(images)\n'
        "torch.allclose(changed, model.head.bias.expand(6, 10))  # True"
    ),
    "cutaway.inspect.Scale": (
        'with intervene(model, cutaway.inspect.Scale("head", 0.5)):\n    changed = model(images)\n'
        "torch.allclose(changed, 0.5 * model(images))  # True"
    ),
    "cutaway.inspect.Replace": (
        'with intervene(model, cutaway.inspect.Replace("head", 1.5, unit=3)):\n    changed = model(images)\n'
        "changed[0, 3].item()  # 1.5"
    ),
    "cutaway.inspect.Noise": (
        'with intervene(model, cutaway.inspect.Noise("c1", std=0.1, seed=0)):\n'
        "    first, second = model(images), model(images)\n"
        "torch.equal(first, second)  # True"
    ),
    "cutaway.inspect.Transplant": (
        'with intervene(model, cutaway.inspect.Transplant("c1", images.flip(0))):\n    changed = model(images)\n'
        "torch.allclose(changed, model(images.flip(0)))  # True"
    ),
}
