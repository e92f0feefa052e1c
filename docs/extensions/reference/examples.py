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
    "cutaway.train": 'fitted = cutaway.train("mlp", (X, y), epochs=2)\nfitted.predict(X[:2])',
    "cutaway.load": 'run = cutaway.load("runs/xy")\nrun.about["model"]  # "mlp"',
    "cutaway.check": 'cutaway.check("mlp", (X, y)).findings  # one sentence for each problem of the data',
    "cutaway.plan": 'found = cutaway.plan("mlp", "digits", gpu="h100", gpus=2)\nfound.best.cost',
    "cutaway.search": (
        'found = cutaway.search("mlp", (X, y), space={"lr": "1e-3..1e-1:log"}, trials=2, epochs=1)\n'
        'found.best["accuracy"]'
    ),
    "cutaway.compare": (
        'found = cutaway.compare(["mlp", "logistic"], (X, y), seeds=2, trials=0, epochs=1)\n'
        'found.best["name"], found.best["value"]'
    ),
    "cutaway.prepare": (
        'from pathlib import Path\nPath("corpus.txt").write_text("to be or not to be, that is the question. " * 500)\n'
        'manifest = cutaway.prepare("corpus.txt", "shards", tokenizer="characters")'
    ),
    "cutaway.prune": 'small = cutaway.prune("runs/xy", "runs/pruned", sparsity=0.5, epochs=1)',
    "cutaway.quantize": 'small = cutaway.quantize("runs/xy", "runs/int8")\nsmall.evaluate()["accuracy"].value',
    "cutaway.export": 'path = cutaway.export("runs/xy", "xy.pt2")',
    "cutaway.look": 'page = cutaway.look(run, view="network")\npage.save("network.html")',
    "cutaway.describe": "description = cutaway.describe(model, images[:1])",
    "cutaway.card": 'cutaway.card("lenet5").card.title',
    "cutaway.create_model": (
        'other = cutaway.create_model("lenet5-modern", num_classes=3)\nother(images).shape  # (6, 3)'
    ),
    "cutaway.list_models": "names = cutaway.list_models()",
    "cutaway.CutawayError": (
        'try:\n    cutaway.train("mlp", (X, y), lr=-1)\nexcept cutaway.CutawayError as error:\n'
        "    error.code  # CUT-101"
    ),
    "cutaway.CutawayWarning": 'import warnings\nwarnings.simplefilter("ignore", cutaway.CutawayWarning)',
    "cutaway.AnyName": 'import sys\nname = cutaway.AnyName(sys.argv[1] if sys.argv[1:] else "mlp")',
    "cutaway.Callback": (
        "class PrintLoss(cutaway.Callback):\n    def on_epoch_end(self, state):\n        print(state.epoch)\n\n"
        'fitted = cutaway.train("mlp", (X, y), epochs=1, callbacks=[PrintLoss()])'
    ),
    "cutaway.Run": 'run = cutaway.load("runs/xy")\nrun.predict([{"a": 0.5, "b": 0.1}])',
    "cutaway.Run.evaluate": 'accuracy = run.evaluate()["accuracy"]\naccuracy.value, accuracy.low, accuracy.high',
    "cutaway.Run.predict": 'run.predict([{"a": 0.5, "b": 0.1}])  # one row for each example',
    "cutaway.Run.data": 'len(run.data().splits["train"])',
    "cutaway.Run.set_data": 'fitted = cutaway.train("mlp", (X, y), epochs=1)\n'
    'fitted.set_data((X, y)).evaluate()["accuracy"].value',
    "cutaway.Run.results": 'outputs, targets = run.results(run.data().splits["test"])[:2]',
    "cutaway.Vectors": (
        'vectors = cutaway.Vectors.from_embedding(torch.nn.Embedding(5, 8), ["[PAD]", "[UNK]", "cat", "dog", "tree"])\n'
        'vectors.neighbours("cat", 2)'
    ),
    "cutaway.Vectors.similarity": 'vectors.similarity("cat", "dog")  # from -1 to 1',
    "cutaway.Vectors.neighbours": 'vectors.neighbours("cat", 2)  # [(word, similarity), ...]',
    "cutaway.Vectors.analogy": 'vectors.analogy("cat", "dog", "tree")',
    "cutaway.Vectors.rows": 'vectors.rows(["cat"])',
    "cutaway.Vectors.save": 'vectors.save("words.txt")',
    "cutaway.Vectors.load": 'cutaway.Vectors.load("words.txt")["cat"].shape  # (8,)',
    "cutaway.Vectors.from_embedding": (
        'cutaway.Vectors.from_embedding(torch.nn.Embedding(4, 8), ["[PAD]", "[UNK]", "a", "b"])'
    ),
    "cutaway.estimators.Classifier": (
        "from cutaway.estimators import Classifier\n"
        'classifier = Classifier("mlp", epochs=2).fit(X, y)\nclassifier.predict_proba(X[:3]).shape  # (3, 2)'
    ),
    "cutaway.estimators.Regressor": (
        "from cutaway.estimators import Regressor\n"
        'regressor = Regressor("mlp", epochs=2).fit(X, X[:, 0])\nregressor.predict(X[:3]).shape  # (3,)'
    ),
    "cutaway.inspect.capture": (
        'with cutaway.inspect.capture(model, "features", "c*") as seen:\n    model(images)\nlist(seen["features"])'
    ),
    "cutaway.inspect.ablate": (
        'effects = cutaway.inspect.ablate(model, images, "c1", by="channel")\neffects[0]  # the largest effect'
    ),
    "cutaway.inspect.patch": (
        'restored = cutaway.inspect.patch(model, images, images.flip(0), "c1", lambda y: y[0, 0])'
    ),
    "cutaway.inspect.attribute": (
        'found = cutaway.inspect.attribute(model, images[:1], method="integrated_gradients", target=2)'
    ),
    "cutaway.inspect.concept": (
        "bright, pool = torch.rand(12, 1, 32, 32) + 1, torch.rand(24, 1, 32, 32)\n"
        'found = cutaway.inspect.concept(model, images, bright, pool, layer="f6", sets=3)\n'
        "found.score, found.p"
    ),
    "cutaway.inspect.flow": (
        "from torch.nn import functional as F\n"
        "layers = cutaway.inspect.flow(model, images, lambda y: F.cross_entropy(y, torch.zeros(6, dtype=torch.long)))"
    ),
    "cutaway.inspect.intervene": (
        "from cutaway.inspect import Zero, intervene\n"
        'with intervene(model, Zero("c1", channel=0)):\n    without = model(images)'
    ),
    "cutaway.inspect.Zero": 'with intervene(model, Zero("c1")):\n    model(images)',
    "cutaway.inspect.Scale": ('with intervene(model, cutaway.inspect.Scale("c1", 0.5)):\n    model(images)'),
    "cutaway.inspect.Replace": ('with intervene(model, cutaway.inspect.Replace("c1", 0.1)):\n    model(images)'),
    "cutaway.inspect.Noise": (
        'with intervene(model, cutaway.inspect.Noise("c1", std=0.1, seed=0)):\n    model(images)'
    ),
    "cutaway.inspect.Transplant": (
        'with intervene(model, cutaway.inspect.Transplant("c1", images.flip(0))):\n    model(images)'
    ),
}
